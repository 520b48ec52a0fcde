"""The queue with its study in a file: what is in it is what other tests find in memory, whenever its process is
killed."""

from __future__ import annotations

import itertools
import os
import signal
import sqlite3
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.runs.study import read_study
from fedtune.record.experiment import Experiment, search_seeds
from fedtune.record.study import StudyFile
from fedtune.trials.race_queue import queue_of
from search_spaces import run_folder
from tests.fedtune.conftest import space, start
from tests.fedtune.in_memory import studies_in_memory
from tests.fedtune.trials.test_queue import end

RACE = {"budget": 4 * 9, "seeds": search_seeds(2, 6), "trials": 1000}


def drive(folder: Path, made: Experiment) -> None:
    """Runs what is left, two trials at a time, each value written when it is there."""
    queue = queue_of(folder, made, space())
    while not queue.finished:
        live = [proposal for proposal in (queue.propose(), queue.propose()) if proposal is not None]
        for proposal in live:
            ending = end(proposal, made.rounds, len(made.metric) > 1)
            for round_, values in ending.curve.items():
                queue.report(proposal.number, round_, values)
            queue.finish(proposal.number, ending)
    queue.close()


def is_killed(folder: Path, made: Experiment, at: Callable[[str], bool]) -> bool:
    """Drives the search in a process that is killed when SQLite begins a statement that `at` tells. It keeps one page
    in memory, so what a transaction changes is in the file before its end."""
    child = os.fork()
    if child:
        status = os.waitpid(child, 0)[1]
        assert status in (0, signal.SIGKILL)
        return status == signal.SIGKILL
    try:
        signal.alarm(60)
        connect = sqlite3.connect

        def begun(statement: str) -> None:
            if at(statement):
                os.kill(os.getpid(), signal.SIGKILL)

        def traced(*given: Any, **more: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = connect(*given, **more)
            connection.execute("PRAGMA cache_size=1")
            connection.set_trace_callback(begun)
            return connection

        sqlite3.connect = traced  # type: ignore[assignment]
        drive(folder, made)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def number(wanted: int) -> Callable[[str], bool]:
    """Tells the statement with this number."""
    count = itertools.count()
    return lambda _: next(count) == wanted


def end_of_adding(trial: int) -> Callable[[str], bool]:
    """Tells the statement that would end the transaction which adds this trial."""
    added = 0

    def tells(statement: str) -> bool:
        nonlocal added
        added += statement.startswith("INSERT INTO trials ")
        return statement == "COMMIT" and added > trial

    return tells


def recorded(folder: Path) -> list[tuple[Any, ...]]:
    study = StudyFile(folder)
    trials = study.trials()
    study.close()
    return [
        (t.number, t.state, t.params, t.values, t.intermediate_values, t.user_attrs, t.system_attrs) for t in trials
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"sampler": "random"},
        {"sampler": "nsga2", "metric": ("val_global_accuracy", "bytes_up")},
        {"sampler": "random", **RACE},
    ],
    ids=["one metric", "several metrics", "a race"],
)
def test_a_process_killed_at_any_statement_loses_nothing(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Also within a transaction; the record is that of a search in memory that nobody killed."""
    changes = {"trials": 6, "lag": 2, **changes}
    with studies_in_memory():
        drive(tmp_path / "calm", start(tmp_path / "calm", **changes))
        calm = recorded(tmp_path / "calm")
    made = start(tmp_path / "killed", **changes)
    kills = next(n for n in itertools.count() if not is_killed(tmp_path / "killed", made, number(120 + 61 * n)))
    assert kills >= 3 and len(calm) >= 4
    assert recorded(tmp_path / "killed") == calm


def test_a_part_of_a_transaction_in_the_file_is_nobodys_trial(tmp_path: Path) -> None:
    """A reader passes over it and changes nothing; who goes on takes it back."""
    made = start(tmp_path / "run", trials=4)
    assert is_killed(tmp_path / "run", made, end_of_adding(2))
    file = tmp_path / "run" / run_folder.STUDY
    left = file.read_bytes()
    _, found = read_study(file)
    assert [trial.number for trial in found] == [0, 1] and file.read_bytes() == left
    assert [kept[0] for kept in recorded(tmp_path / "run")] == [0, 1]
    assert file.read_bytes() != left, "no part of the transaction was in the file"


def test_a_reader_sees_every_value_while_the_queue_holds_the_file(tmp_path: Path) -> None:
    made = start(tmp_path / "run", trials=1)
    queue = queue_of(tmp_path / "run", made, space())
    proposal = queue.propose()
    assert proposal is not None
    for round_ in (1, 2):
        queue.report(proposal.number, round_, (0.5 * round_,))
        _, (trial,) = read_study(queue._study.path)
        assert trial.state.name == "RUNNING" and trial.intermediate_values[round_] == 0.5 * round_
    queue.close()
