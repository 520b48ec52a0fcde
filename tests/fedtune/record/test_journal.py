"""The journal of a search whose driver is killed: nothing is lost, and nothing of it is anybody's trial that was not
written to its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis.runs.study import read_study
from fedtune.execution.queue import Proposal, Queue
from fedtune.record.experiment import Experiment, search_seeds
from fedtune.record.journal import StudyFile
from search_spaces import run_folder
from tests.fedtune.conftest import start
from tests.fedtune.execution.test_queue import end
from tests.fedtune.queues import begun, drive, opened, recorded, take

RACE = {"budget": 4 * 9, "seeds": search_seeds(2, 6), "trials": 1000}


def run_rest(folder: Path, made: Experiment) -> None:
    """Runs what is left, two trials at a time, each value written when it is there."""

    def end_with_values(queue: Queue, proposal: Proposal) -> None:
        found = end(proposal, made.rounds, len(made.metric) > 1)
        for round_, values in found.curve.items():
            queue.report(proposal.number, round_, values)
        queue.finish(proposal.number, found)

    drive(lambda: opened(folder, made), end_with_values, 2)


@pytest.mark.parametrize(
    "changes",
    [
        {"sampler": "random"},
        {"sampler": "nsga2", "metric": ("val_global_accuracy", "bytes_up")},
        {"sampler": "random", **RACE},
    ],
    ids=["one metric", "several metrics", "a race"],
)
def test_a_driver_killed_in_any_line_loses_nothing(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Whatever a kill leaves is the journal up to some byte, as nothing but its end is ever written. The record of the
    search that goes on from there is that of one that nobody killed."""
    changes = {"trials": 6, "lag": 2, **changes}
    made = start(tmp_path / "run", **changes)
    run_rest(tmp_path / "run", made)
    whole, file = recorded(tmp_path / "run"), tmp_path / "run" / run_folder.STUDY
    journal = file.read_bytes()
    ends = [place + 1 for place, byte in enumerate(journal) if byte == ord("\n")]
    assert len(whole) >= 4 and len(ends) > 30
    for place in range(1, len(ends), 7):
        for killed in (ends[place], (ends[place - 1] + ends[place]) // 2, ends[place] - 1):
            file.write_bytes(journal[:killed])
            run_rest(tmp_path / "run", made)
            assert recorded(tmp_path / "run") == whole


def test_a_reader_passes_over_half_a_line_and_changes_nothing(tmp_path: Path) -> None:
    queue = begun(tmp_path / "run", trials=4)
    _ = take(queue), take(queue)
    file = tmp_path / "run" / run_folder.STUDY
    left = file.read_bytes()[:-5]
    file.write_bytes(left)
    _, found = read_study(file)
    assert [trial.number for trial in found] == [0] and file.read_bytes() == left


def test_a_reader_sees_every_value_while_the_queue_holds_the_file(tmp_path: Path) -> None:
    queue = begun(tmp_path / "run", trials=1)
    proposal = take(queue)
    for round_ in (1, 2):
        queue.report(proposal.number, round_, (0.5 * round_,))
        _, (trial,) = read_study(tmp_path / "run" / run_folder.STUDY)
        assert trial.state.name == "RUNNING" and trial.intermediate_values[round_] == 0.5 * round_


def test_no_trial_needs_what_the_study_holds_of_all_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the time that a trial takes grows with their number: of 9,000 it was a seventh of the driver's."""
    all_trials, read = StudyFile.trials, list[int]()

    def noted(study: StudyFile) -> Any:
        read.append(trials)
        return all_trials(study)

    monkeypatch.setattr(StudyFile, "trials", noted)
    for trials in (2, 5):
        run_rest(tmp_path / str(trials), start(tmp_path / str(trials), trials=trials))
    assert read.count(2) == read.count(5) > 0
    study = StudyFile(tmp_path / "5")
    found = [study.trial(number) for number in range(5)]
    assert found == all_trials(study) and [trial.number for trial in found] == list(range(5))
