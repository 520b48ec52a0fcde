"""`fedtune extend --rounds`: trials that had run all their rounds go on."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from analysis.runs import load_run
from fedtune.decisions.early_stopping import Halving, Later
from fedtune.decisions.race import is_over, unfinished
from fedtune.record.experiment import Experiment
from fedtune.record.journal import StudyFile
from fedtune.record.run_directory import write_document
from search_spaces import run_folder
from tests.fedtune.conftest import frozen
from tests.fedtune.played import play, searched
from tests.fedtune.queues import opened

PLAIN: dict[str, Any] = {"scheduler": "none", "trials": 6}


def lengthen(folder: Path, rounds: int) -> Experiment:
    """What `fedtune extend --rounds` writes."""
    before = Experiment.read(folder)
    total = before.rounds + rounds
    made = dataclasses.replace(
        before,
        rounds=total,
        rounds_before=(*before.rounds_before, before.rounds),
        values={**before.values, "rounds": total},
    )
    write_document(folder / run_folder.EXPERIMENT, made.to_yaml())
    return made


def without(found: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    """`frozen` without these attributes of trials."""
    return [
        trial | {"attributes": {key: value for key, value in trial["attributes"].items() if key not in names}}
        for trial in found
    ]


@pytest.mark.parametrize(
    "changes",
    [{"sampler": "random"}, {"sampler": "grid"}, {"sampler": "random", "metric": ("val_global_accuracy", "val_wlp")}],
    ids=["random", "grid", "several metrics"],
)
def test_a_search_that_goes_on_is_the_longer_search(tmp_path: Path, changes: dict[str, Any]) -> None:
    searched(tmp_path / "long", **PLAIN | changes, rounds=6)
    searched(tmp_path / "short", **PLAIN | changes, rounds=4)
    made = lengthen(tmp_path / "short", 2)
    assert len(unfinished(load_run(tmp_path / "short").frozen, made)) == 6
    opened(tmp_path / "short", made)
    play(tmp_path / "short", width=3, sessions=2)
    found = frozen(tmp_path / "short")
    assert {trial["attributes"].pop(run_folder.WENT_ON) for trial in found} == {4}
    assert found == frozen(tmp_path / "long")


def test_trials_that_go_on_run_and_have_no_value_yet(tmp_path: Path) -> None:
    searched(tmp_path / "run", **PLAIN, rounds=4)
    before = frozen(tmp_path / "run")
    made = lengthen(tmp_path / "run", 3)
    assert not is_over(load_run(tmp_path / "run").frozen, made), "the study does not know of it yet"
    opened(tmp_path / "run", made)
    study = StudyFile(tmp_path / "run")
    trials = study.trials()
    for trial, had in zip(trials, before, strict=True):
        assert (trial.state.name, trial.values, trial.datetime_complete) == ("RUNNING", None, None)
        assert (trial.params, trial.intermediate_values) == (had["params"], had["curve"])
        origin = {key: value for key, value in had["attributes"].items() if key == "from"}
        assert trial.user_attrs == origin | {run_folder.WENT_ON: 4}
    again = frozen(tmp_path / "run")
    opened(tmp_path / "run", made)
    assert frozen(tmp_path / "run") == again, "once is enough"


def test_stopped_and_failed_trials_stay_as_they_are(tmp_path: Path) -> None:
    searched(tmp_path / "run", sampler="random", scheduler="asha", grace=1, trials=12, rounds=4)
    before = frozen(tmp_path / "run")
    stopped = [trial["number"] for trial in before if trial["state"] == "PRUNED"]
    whole = [trial["number"] for trial in before if trial["state"] == "COMPLETE"]
    assert stopped and whole
    made = lengthen(tmp_path / "run", 5)
    opened(tmp_path / "run", made)
    play(tmp_path / "run")
    after = frozen(tmp_path / "run")
    assert [after[number] for number in stopped] == [before[number] for number in stopped]
    for number in whole:
        ran = after[number]["attributes"]["rounds"]
        assert 4 < ran <= 9 and after[number]["rows"][: 2 * 4] == before[number]["rows"]
        assert after[number]["state"] == ("COMPLETE" if ran == 9 else "PRUNED")
    assert is_over(load_run(tmp_path / "run").frozen, made)


def test_a_search_that_learns_goes_on_to_the_same_end_however_often_it_is_killed(tmp_path: Path) -> None:
    for name, sessions in (("calm", 1), ("killed", 2)):
        searched(tmp_path / name, sampler="tpe", scheduler="asha", grace=1, trials=14, rounds=4)
        made = lengthen(tmp_path / name, 5)
        opened(tmp_path / name, made)
        play(tmp_path / name, width=4 if name == "calm" else 2, sessions=sessions)
    assert frozen(tmp_path / "calm") == frozen(tmp_path / "killed")


def test_a_second_extension_goes_on_from_the_first(tmp_path: Path) -> None:
    searched(tmp_path / "long", **PLAIN, rounds=9)
    searched(tmp_path / "run", **PLAIN, rounds=4)
    for rounds in (2, 3):
        opened(tmp_path / "run", lengthen(tmp_path / "run", rounds))
        play(tmp_path / "run")
    assert Experiment.read(tmp_path / "run").rounds_before == (4, 6)
    assert without(frozen(tmp_path / "run"), run_folder.WENT_ON) == frozen(tmp_path / "long")


def test_a_search_that_was_never_extended_has_nothing_to_go_on_with(tmp_path: Path) -> None:
    run = searched(tmp_path / "run", **PLAIN, rounds=4)
    made = dataclasses.replace(Experiment.of(run), rounds=9)  # somebody edited the file
    assert unfinished(run.frozen, made) == []


def test_early_stopping_does_not_judge_a_round_twice() -> None:
    rule = Halving.of(2, {4: [(1.0,), (1.0,)], 6: [(1.0,), (1.0,)]})
    curve = {4: (0.0,), 6: (0.0,)}
    assert rule.stops(4, curve) and rule.stops(6, curve)
    assert not Later(4, rule).stops(4, curve) and Later(4, rule).stops(6, curve)
