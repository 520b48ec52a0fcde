"""Opens run directories: everything that looks at finished or live runs starts here, with `load_run`.

The reader relies on nothing but the folder, which may have been moved, unzipped or made read-only, or may be written to
by a driver right now. Names of files and fields are in `search_spaces.run_folder`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analysis.runs import shapes
from analysis.runs.experiment import ExperimentRecord
from analysis.runs.file_record import take_metrics
from analysis.runs.mappings import read_json, read_yaml
from analysis.runs.record import Record
from analysis.runs.run import Run
from analysis.runs.study import read_study
from analysis.runs.study_checks import check_directions, check_kind, check_trials
from analysis.runs.symbolic_links import check_plain
from search_spaces import files, run_folder
from search_spaces.errors import DamagedFile, UserError, sentence, short

#: One run directory or several.
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str] | Run]


def load_run(path: str | os.PathLike[str]) -> Run:
    """The run at `path`. Raises `UserError` where that is no run directory, one of another version, or one that holds a
    symbolic link."""
    folder = files.given(path)
    if folder.is_file() and folder.name in (run_folder.EXPERIMENT, run_folder.STUDY, run_folder.SPACE):
        folder = folder.parent
    what = f"The run {short(repr(str(path)))}"
    if not folder.is_dir():
        raise UserError(f"There is no run {short(repr(str(path)))}: that is not a directory. {beside(folder)}")
    check_plain(folder)
    missing = [name for name in (run_folder.EXPERIMENT, run_folder.STUDY) if not (folder / name).is_file()]
    if missing and (command := run_folder.made_by(folder)) is not None:
        raise UserError(_several(folder, path, command))
    if missing:
        inner = sorted(p.parent.name for p in folder.glob(f"*/{run_folder.EXPERIMENT}"))
        hint = f" It holds runs: {', '.join(inner[:5])}." if inner else ""
        raise UserError(
            f"{what} is not a run directory: {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} "
            f"missing.{hint}"
        )
    experiment = read_yaml(folder / run_folder.EXPERIMENT)
    version = experiment.get("version", run_folder.VERSION)
    if not shapes.is_whole(run_folder.VERSION, run_folder.VERSION)(version):
        must = f"{run_folder.VERSION}, the version this fedtune reads"
        raise UserError(sentence("version", must, version, str(folder / run_folder.EXPERIMENT)))
    take_metrics(experiment, str(folder / run_folder.EXPERIMENT))
    wrong = shapes.problems(experiment, ExperimentRecord.shape(), str(folder / run_folder.EXPERIMENT))
    if wrong:
        raise UserError(*wrong)
    damaged: list[str] = []
    space = _optional(folder / run_folder.SPACE, shapes.SPACE, damaged)
    directions, frozen = read_study(folder / run_folder.STUDY)
    check_trials(folder / run_folder.STUDY, len(directions), frozen)
    check_kind(folder, experiment, frozen)
    check_directions(folder / run_folder.STUDY, experiment, directions)
    given = experiment.get("metric") or space.get("metric") or ["val_global_accuracy"]
    selected = [given] if isinstance(given, str) else list(given)
    selected += [f"objective {i}" for i in range(len(selected), len(directions))]
    provenance = _optional(folder / run_folder.PROVENANCE, shapes.PROVENANCE, damaged)
    named = tuple(selected[: len(directions)])
    record = Record(folder.resolve(), experiment, space, provenance, tuple(damaged))
    return Run(record, directions, named, frozen)


def _optional(path: Path, shape: shapes.Shape, damaged: list[str]) -> dict[str, Any]:
    """A file without which a run can be read; empty where it is missing, or is not what fedtune wrote, which is then
    added to `damaged` and warned of."""
    if not path.exists():
        return {}
    try:
        found = read_json(path)
        wrong = shapes.problems(found, shape, str(path))
    except UserError as error:
        found, wrong = {}, [str(error)]
    if wrong:
        damaged.append(f"What {path.name} says is left out, as it is damaged: {wrong[0]}")
        warnings.warn(DamagedFile(damaged[-1]), stacklevel=3)
    return {} if wrong else found


def beside(folder: Path) -> str:
    """The runs that stand where one was looked for."""
    near = (
        sorted(p.parent.name for p in folder.parent.glob(f"*/{run_folder.EXPERIMENT}"))
        if folder.parent.is_dir()
        else []
    )
    return (
        f"Runs in {folder.parent.resolve()}: {', '.join(near[:8])}."
        if near
        else "Give the folder a search wrote, such as runs/dfrd-alpha_lambda."
    )


#: Of a folder of several runs, by the command that made it: where most of its runs are, and what can be given.
_PARTS = {
    "auto": (
        run_folder.SEARCHES,
        "search/METHOD is a search, fresh/METHOD and final/METHOD are final runs; `fedtune run` takes best/METHOD.yaml "
        "too, and `fedtune status`, `report` and `resume` take the whole folder.",
    ),
    "reproduce": (
        run_folder.CELLS,
        "cells/ holds them all; `fedtune status`, `figure pivot` and `resume` take the whole folder, whose report is "
        "its report.html.",
    ),
}


def _several(folder: Path, path: str | os.PathLike[str], command: str) -> str:
    """The sentence for a folder that `command` made, where one run was to be given."""
    inside, parts = _PARTS[command]
    runs = sorted(found.parent for found in (folder / inside).glob(f"*/{run_folder.EXPERIMENT}"))
    such = f", such as {files.shown(runs[0])}" if runs else ""
    made = f"{short(repr(str(path)))} was made by `fedtune {command}` and holds several runs."
    return f"{made} Give one of them{such}: {parts}"


def load_runs(paths: Paths) -> list[Run]:
    """One or several runs, opened where they are not yet. Raises one `UserError` with the problems of all."""
    listed = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not listed:
        raise UserError("A run must be given, got none. Give the folder a search wrote.")
    runs: list[Run] = []
    problems: list[str] = []
    for path in listed:
        try:
            runs.append(path if isinstance(path, Run) else load_run(path))
        except UserError as error:
            problems.extend(error.problems)
    if problems:
        raise UserError(*problems)
    return runs


def run_names(runs: Sequence[Run]) -> list[str]:
    """One distinct name per run: the folder's name, with as much of its path as it takes, then a number."""
    found = [run.name for run in runs]
    if len(set(found)) < len(found):
        found = [f"{run.path.parent.name}/{run.name}" for run in runs]
    return [name if found.count(name) == 1 else f"{name} #{i + 1}" for i, name in enumerate(found)]
