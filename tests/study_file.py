"""Studies that tests write at once, and change."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial

from analysis.runs.study import read_study
from fedtune.record.journal import as_journal
from search_spaces import run_folder

#: A line of a journal: an operation on a study.
Operation = dict[str, Any]


def write(path: Path, name: str, directions: Sequence[str], trials: Sequence[FrozenTrial]) -> None:
    """Makes the study `name`, whose trials these are in order, the content of the file `path`. `directions`: `maximize`
    or `minimize` for every objective."""
    path.write_text(as_journal(name, directions, trials))


def change(path: Path, changed: Callable[[Operation], object], *numbers: int) -> None:
    """Changes the study in the file `path`: `changed` is given the line that creates a trial with all that it has, of
    each of the trials `numbers`, or of all."""
    directions, trials = read_study(path)
    write(path, path.parent.name, directions, trials)
    lines = operations(path)
    for number in numbers or range(len(trials)):
        changed(lines[1 + number])
    rewrite(path, lines)


def with_error(folder: Path, error: str) -> None:
    """Those trials of the run in `folder` that have an error have this one."""

    def changed(trial: Operation) -> None:
        if "error" in trial["user_attrs"]:
            trial["user_attrs"]["error"] = error

    change(folder / run_folder.STUDY, changed)


def operations(path: Path) -> list[Operation]:
    """The lines of the journal."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def rewrite(path: Path, lines: Sequence[Operation]) -> None:
    """Makes these lines the journal."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def journal(folder: Path) -> JournalStorage:
    """The study of the run in `folder`, as Optuna itself opens it."""
    return JournalStorage(JournalFileBackend(str(folder / run_folder.STUDY)))
