"""A study that tests keep in memory is the one that they would have in its file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
import pytest

from fedtune.record.study import StudyFile, run_again
from fedtune.trials.queue import TrialQueue
from search_spaces import run_folder
from tests.fedtune.conftest import frozen, space, start
from tests.fedtune.in_memory import OpenStudy, studies_in_memory
from tests.fedtune.played import searched
from trainables.tune import Ending


def test_the_file_of_a_closed_study_is_the_one_that_optuna_would_have_written(tmp_path: Path) -> None:
    """Of all that a trial holds but when it began and ended."""
    changes: dict[str, Any] = {"sampler": "tpe", "scheduler": "asha", "grace": 1, "trials": 8, "rounds": 3}
    with studies_in_memory():
        searched(tmp_path / "memory" / "run", **changes)
    searched(tmp_path / "disk" / "run", **changes)
    memory, disk = (
        optuna.load_study(study_name="run", storage=f"sqlite:///{tmp_path}/{place}/run/{run_folder.STUDY}")
        for place in ("memory", "disk")
    )
    assert memory.directions == disk.directions and len(disk.trials) == 8
    for one, other in zip(memory.trials, disk.trials, strict=True):
        assert one.datetime_start is not None and one.datetime_complete is not None
        other.datetime_start, other.datetime_complete = one.datetime_start, one.datetime_complete
        assert one == other
    assert frozen(tmp_path / "memory" / "run") == frozen(tmp_path / "disk" / "run")


def test_who_opens_an_open_study_finds_what_is_new_and_who_opens_a_closed_one_reads_its_file(
    tmp_path: Path, study_in_memory: None
) -> None:
    queue = TrialQueue(tmp_path / "run", start(tmp_path / "run", trials=2, sampler="random"), space())
    for _ in range(2):
        assert queue.propose() is not None
    queue.finish(0, Ending("completed", 9, None, {9: (0.5,)}))
    reader = StudyFile(tmp_path / "run")
    assert isinstance(reader._storage, OpenStudy) and reader._storage is queue._study._storage
    assert [trial.state.name for trial in reader.trials()] == ["COMPLETE", "RUNNING"]
    reader.close()
    queue.finish(1, Ending("completed", 9, None, {9: (0.25,)}))
    assert [trial.state.name for trial in StudyFile(tmp_path / "run").trials()] == ["COMPLETE"] * 2
    queue.close()
    run_again(tmp_path / "run", {1: {"went_on": 9}})
    trials = StudyFile(tmp_path / "run").trials()
    assert [(trial.state.name, trial.values) for trial in trials] == [("COMPLETE", [0.5]), ("RUNNING", None)]
    assert trials[1].user_attrs == {"went_on": 9} and trials[1].intermediate_values == {9: 0.25}


def test_what_a_trial_is_given_goes_through_json(tmp_path: Path, study_in_memory: None) -> None:
    start(tmp_path / "run")
    study = StudyFile(tmp_path / "run")
    proposed = optuna.trial.create_trial(
        state=optuna.trial.TrialState.RUNNING, user_attrs={"pair": (1, 2)}, system_attrs={"a:generation": 0, "b": (3,)}
    )
    study.add(proposed)
    study.set_attribute(0, "rows", {1: (0.5,)})
    (trial,) = study.trials()
    assert trial.user_attrs == {"pair": [1, 2], "rows": {"1": [0.5]}} and trial.system_attrs["b"] == [3]
    with pytest.raises(TypeError):
        study.set_attribute(0, "no JSON", object())
    study.close()


def test_a_file_that_changed_under_an_open_study_is_not_written_over(tmp_path: Path, study_in_memory: None) -> None:
    queue = TrialQueue(tmp_path / "run", start(tmp_path / "run"), space())
    assert queue.propose() is not None
    path = tmp_path / "run" / run_folder.STUDY
    path.write_bytes(path.read_bytes() + bytes(1))
    with pytest.raises(AssertionError, match="by somebody else"):
        queue.close()


@pytest.mark.on_disk
def test_one_marked_on_disk_has_its_file(tmp_path: Path, study_in_memory: None) -> None:
    start(tmp_path / "run")
    study = StudyFile(tmp_path / "run")
    assert not isinstance(study._storage, OpenStudy)
    study.close()
