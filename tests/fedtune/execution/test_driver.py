"""Whole searches on real Ray with the fake simulation."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import optuna
import pytest

from analysis import machines
from analysis.runs import load_run
from fedtune.api.export import export
from fedtune.api.extend import extend
from fedtune.api.resume import resume
from fedtune.api.search import Result, carry_out
from fedtune.api.status import status
from fedtune.console import progress
from fedtune.execution import queue, ray_session
from fedtune.execution.retries import EndedFromOutside
from fedtune.options import Progress
from fedtune.planning.plan import Plan
from fedtune.record import provenance, run_directory
from fedtune.record.journal import StudyFile
from search_spaces import run_folder
from search_spaces.errors import UserError
from tests.fedtune.conftest import experiment, frozen, space
from tests.fedtune.fake import Fake, Full, Gone, Troubled
from tests.fedtune.played import asked
from tests.study_file import journal

Conduct = Callable[..., Result]


def test_concurrency_changes_nothing(conduct: Conduct, tmp_path: Path) -> None:
    asked(tmp_path / "alone")
    together = conduct("together", concurrency=4)
    assert together.finished and together.counts["PRUNED"] > 0
    assert frozen(tmp_path / "alone") == frozen(tmp_path / "together")
    assert optuna.load_study(study_name=None, storage=journal(tmp_path / "together")).best_value == next(
        iter(together.best.values.values())
    )  # type: ignore[union-attr]


def test_a_longer_search_is_an_extended_one(ray_cluster: None, tmp_path: Path) -> None:
    asked(tmp_path / "long", trials=10)
    asked(tmp_path / "short", trials=6)
    result = extend(tmp_path / "short", trials=4, quiet=True, simulate=Fake)
    assert result.finished and sum(result.counts.values()) == 10
    assert frozen(tmp_path / "short") == frozen(tmp_path / "long")


ALL_ROUNDS: dict[str, Any] = {"scheduler": "none", "sampler": "grid", "trials": 6}


def extended(folder: Path) -> list[dict[str, Any]]:
    """`frozen` without the note that a trial went on."""
    found = frozen(folder)
    for trial in found:
        trial["attributes"].pop(run_folder.WENT_ON, None)
    return found


def checkpoints(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((folder / run_folder.TRIALS).glob(f"*/{run_folder.CHECKPOINT}"))]


def test_a_grid_of_longer_trials_is_an_extended_one(
    conduct: Conduct, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = conduct("long", **ALL_ROUNDS, rounds=6, concurrency=1)
    conduct("short", **ALL_ROUNDS, rounds=4, concurrency=1)
    (tmp_path / "short" / run_folder.trial_folder(2) / run_folder.CHECKPOINT).unlink()
    capsys.readouterr()
    result = extend(tmp_path / "short", rounds=2, plain=True, simulate=Fake)
    said = (
        "Trials of 4 rounds get 2 more, which makes 6: 6 trials that had run to their end go on from their checkpoints."
    )
    lines = capsys.readouterr().err.splitlines()
    assert said in lines and "Trial 2 starts again from round 0, as its checkpoint is missing." in lines
    assert result.finished and result.counts == {"COMPLETE": 6}
    assert extended(tmp_path / "short") == frozen(tmp_path / "long")
    assert len(checkpoints(tmp_path / "long")) == 6
    assert checkpoints(tmp_path / "short") == checkpoints(tmp_path / "long")
    assert result.best is not None and long.best is not None
    assert (result.best.number, result.best.values) == (long.best.number, long.best.values)
    assert export(tmp_path / "short")["parameters"]["rounds"] == 6
    recorded = json.loads((tmp_path / "short" / run_folder.PROVENANCE).read_text())
    assert [(one["rounds"], "trials" in one) for one in recorded["extended"]] == [([4, 6], False)]
    assert status(tmp_path / "short")["state"] == "finished"


def test_an_extension_that_ends_too_early_is_resumed(
    conduct: Conduct, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a trial was put back, and in the midst of their further rounds."""
    full = partial(Full, flag=str(tmp_path / "full"))
    asked(tmp_path / "long", **ALL_ROUNDS, rounds=4)
    conduct("short", **ALL_ROUNDS, rounds=2, concurrency=1)
    with monkeypatch.context() as patched:
        patched.setattr(queue, "opened", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
        begun = extend(tmp_path / "short", rounds=2, quiet=True, simulate=full)
    assert begun.interrupted and not begun.finished and begun.counts == {"COMPLETE": 6}
    assert status(tmp_path / "short")["state"] == "resumable"
    (tmp_path / "full").touch()
    with pytest.raises(UserError, match="No space left"):
        resume(tmp_path / "short", quiet=True, simulate=full)
    waiting = status(tmp_path / "short")
    assert waiting["state"] == "resumable" and {one["round"] for one in waiting["running"]} == {2}
    (tmp_path / "full").unlink()
    assert resume(tmp_path / "short", quiet=True, simulate=full).counts == {"COMPLETE": 6}
    assert extended(tmp_path / "short") == frozen(tmp_path / "long")


RACE = {"budget": 60, "seeds": (0, 1, 2, 3), "rounds": 5, "trials": 12}


def test_a_race_is_the_same_whatever_runs_side_by_side(
    conduct: Conduct, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[progress.ProgressDisplay] = []

    class Kept(progress.ProgressDisplay):
        def __post_init__(self) -> None:
            super().__post_init__()
            shown.append(self)

    monkeypatch.setattr(progress, "ProgressDisplay", Kept)
    asked(tmp_path / "alone", **RACE)
    result = conduct("together", concurrency=4, **RACE)
    assert result.finished and frozen(tmp_path / "alone") == frozen(tmp_path / "together")
    trials = StudyFile(tmp_path / "alone").study.trials
    assert any("of" in trial.user_attrs for trial in trials)
    spent = sum(trial.user_attrs["rounds"] for trial in trials)
    assert 55 < spent <= 60 and [display.spent for display in shown] == [spent]


def test_a_longer_race_is_an_extended_one(ray_cluster: None, tmp_path: Path) -> None:
    asked(tmp_path / "long", **RACE)
    asked(tmp_path / "short", **RACE | {"budget": 40, "trials": 8})
    result = extend(tmp_path / "short", trials=4, quiet=True, simulate=Fake)
    assert result.finished and frozen(tmp_path / "short") == frozen(tmp_path / "long")


def test_a_finished_run_is_left_alone(ray_cluster: None, tmp_path: Path) -> None:
    asked(tmp_path / "run", trials=2, scheduler="none", rounds=2)
    before = frozen(tmp_path / "run")
    result = resume(tmp_path / "run", quiet=True, simulate=Fake)
    assert result.finished and frozen(tmp_path / "run") == before


@pytest.mark.guard("trials that fail")
def test_trouble_ends_trials_not_the_search(conduct: Conduct, tmp_path: Path) -> None:
    """Four trials of a grid have four troubles, and the other two run to their end."""
    result = conduct("run", **ALL_ROUNDS, rounds=3, simulate=Troubled)
    assert result.finished and result.counts == {"FAIL": 4, "COMPLETE": 2}
    trials = {(t.params["alpha"], t.params["lambda"]): t for t in StudyFile(tmp_path / "run").study.trials}
    failed = {cell: trial for cell, trial in trials.items() if trial.state.name == "FAIL"}
    assert {cell: trial.user_attrs["stop_reason"] for cell, trial in failed.items()} == {
        cell: "diverged" if trouble == "nan" else "error" for cell, trouble in Troubled.TROUBLES.items()
    }
    assert all(trial.user_attrs["error"] for trial in failed.values())
    assert result.best is not None and result.best.number in {
        trial.number for cell, trial in trials.items() if cell not in failed
    }


def test_a_search_of_which_every_trial_fails_has_no_best(conduct: Conduct) -> None:
    result = conduct("run", trials=2, scheduler="none", sampler="random", rounds=2, values={"trouble": "raise"})
    assert result.finished and result.counts == {"FAIL": 2} and result.best is None


def test_a_process_that_dies_is_replaced_and_goes_on(conduct: Conduct, tmp_path: Path) -> None:
    asked(tmp_path / "calm", trials=2, scheduler="none", sampler="random", rounds=5)
    result = conduct(
        "run",
        trials=2,
        scheduler="none",
        sampler="random",
        rounds=5,
        values={"trouble": "die", "flag": str(tmp_path / "flag")},
        concurrency=1,
    )
    assert (tmp_path / "flag").exists() and result.counts == {"COMPLETE": 2}
    assert frozen(tmp_path / "run") == frozen(tmp_path / "calm"), "with the share it had, too"


def test_a_process_that_dies_is_told_with_the_round_it_reached(
    ray_cluster: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It dies in round 3, before that is written."""
    values = {"trouble": "die", "flag": str(tmp_path / "flag")}
    made = experiment(
        tmp_path / "run", trials=1, scheduler="none", sampler="random", rounds=4, concurrency=1, values=values
    )
    carry_out(Plan(tmp_path / "run", made, space(), {}, (), {}), Progress(plain=True, simulate=Fake))
    told = [line for line in capsys.readouterr().err.splitlines() if "process died" in line]
    assert told == [
        "Trial 0 stopped after round 2, as the process died; it goes on from its last checkpoint as before."
    ]


def test_a_process_that_keeps_crashing_is_one_failed_trial(conduct: Conduct, tmp_path: Path) -> None:
    result = conduct("run", trials=1, scheduler="none", sampler="random", rounds=5, values={"trouble": "crash always"})
    assert result.finished and result.counts == {"FAIL": 1}
    attributes = StudyFile(tmp_path / "run").study.trials[0].user_attrs
    assert attributes["rounds"] == 0
    assert attributes["error"] == "Its process died 3 times by a crash in native code, each time after round 0."


def test_a_crash_on_a_machine_that_sends_home_is_told_there_too(
    conduct: Conduct, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the process wrote last is in a file of that machine, and was not sent."""
    unseen = Path("/nowhere/.session-1"), tmp_path.name
    monkeypatch.setattr(ray_session, "token", lambda folder: contextlib.nullcontext(unseen))
    asked = {"trials": 1, "scheduler": "none", "sampler": "random", "rounds": 5, "address": "auto"}
    result = conduct("run", **asked, values={"trouble": "crash always"})
    assert result.counts == {"FAIL": 1}
    error = StudyFile(tmp_path / "run").study.trials[0].user_attrs["error"]
    assert error == "Its process died 3 times by a crash in native code, each time after round 0."
    assert (tmp_path / "run/trials/0000/log.txt").read_text().count("Fatal Python error: Aborted") == 3


def test_a_process_that_is_killed_at_the_same_round_is_no_failed_trial(conduct: Conduct, tmp_path: Path) -> None:
    """By SIGKILL, of which nothing says that the trial is to blame."""
    asked = {"trials": 1, "scheduler": "none", "sampler": "random", "rounds": 5}
    with pytest.raises(EndedFromOutside, match="died 3 times, each time after round 0, and nothing says") as told:
        conduct("run", **asked, values={"trouble": "die always"})
    assert told.value.exit_code == 3
    [trial] = load_run(tmp_path / "run").frozen
    assert trial.state.name == "RUNNING" and trial.user_attrs["stop_reason"] == "interrupted"
    assert "error" not in trial.user_attrs


def test_a_process_that_is_ended_from_outside_is_no_failed_trial(conduct: Conduct, tmp_path: Path) -> None:
    """It dies in another round each time."""
    rest = {"trials": 1, "scheduler": "none", "sampler": "random", "rounds": 5}
    asked(tmp_path / "calm", **rest)
    with pytest.raises(EndedFromOutside, match="died 3 times, after the rounds 1, 2 and 3, so it was ended from out"):
        conduct("run", **rest, simulate=partial(Fake, trouble="die later", flag=str(tmp_path / "flag")))
    [trial] = load_run(tmp_path / "run").frozen
    assert trial.state.name == "RUNNING" and trial.user_attrs["stop_reason"] == "interrupted"
    assert "error" not in trial.user_attrs
    assert resume(tmp_path / "run", quiet=True, simulate=Fake).counts == {"COMPLETE": 1}
    assert [trial["rows"] for trial in frozen(tmp_path / "run")] == [t["rows"] for t in frozen(tmp_path / "calm")]


def test_out_of_time_leaves_trials_to_be_resumed(conduct: Conduct, tmp_path: Path) -> None:
    asked(tmp_path / "calm", trials=4, rounds=20, scheduler="none")
    rest = {"trials": 4, "rounds": 20, "scheduler": "none", "time": 4.0, "concurrency": 2}
    result = conduct("run", **rest, simulate=partial(Fake, sleep=0.2))
    assert result.out_of_time and not result.finished and result.counts["RUNNING"] > 0
    resumed = resume(tmp_path / "run", time=600, quiet=True, simulate=Fake)
    assert resumed.finished and resumed.counts == {"COMPLETE": 4}
    assert frozen(tmp_path / "run") == frozen(tmp_path / "calm")


def test_several_metrics(conduct: Conduct, tmp_path: Path) -> None:
    result = conduct(
        "run", trials=14, sampler="nsga2", metric=("val_global_accuracy", "val_wlp"), rounds=9, concurrency=1
    )
    study = optuna.load_study(study_name=None, storage=journal(tmp_path / "run"))
    assert result.finished and result.counts.get("PRUNED", 0) > 0 and len(study.best_trials) >= 1
    assert all(trial.values is None for trial in study.trials if trial.state == optuna.trial.TrialState.PRUNED)


def test_one_driver_at_a_time(tmp_path: Path) -> None:
    from fedtune.record.run_directory import is_driven, lock

    asked(tmp_path / "run", trials=1, rounds=1, scheduler="none")
    with lock(tmp_path / "run"):
        assert is_driven(tmp_path / "run")
        # A lock is between processes (and between two opens of one): another attempt must be refused.
        with pytest.raises(UserError, match="driven by another process"):
            resume(tmp_path / "run", quiet=True, simulate=Fake)
    assert not is_driven(tmp_path / "run")


def test_a_moved_run_can_be_extended(conduct: Conduct, tmp_path: Path) -> None:
    conduct("run", trials=2, rounds=2, scheduler="none", concurrency=1)
    strange = tmp_path / "a b?c%20#d"
    (tmp_path / "run").rename(strange)
    assert extend(strange, trials=1, quiet=True, simulate=Fake).counts == {"COMPLETE": 3}


def told(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines on stderr that say that numbers may differ."""
    return [line for line in capsys.readouterr().err.splitlines() if "other last digits" in line]


def elsewhere(monkeypatch: pytest.MonkeyPatch, **other: str) -> None:
    """From now on this machine is another."""
    here = provenance.machine()
    monkeypatch.setattr(provenance, "machine", lambda device="cpu": here | other)


def test_an_extension_on_another_kind_of_processor_says_so(
    ray_cluster: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked(tmp_path / "run", trials=1, rounds=1, scheduler="none", concurrency=1)
    here = machines.kind(provenance.machine())
    elsewhere(monkeypatch, host="another")
    extend(tmp_path / "run", trials=1, plain=True, simulate=Fake)
    assert told(capsys) == [], "another machine of the same kind"
    elsewhere(monkeypatch, processor="Zuse Z3", instructions="DEFAULT")
    for _ in range(2):
        extend(tmp_path / "run", trials=1, plain=True, simulate=Fake)
        assert told(capsys) == [
            f"This run was begun with {here} and goes on with Zuse Z3 (DEFAULT), where the same seed may give other "
            f"last digits: "
            "its numbers may differ from those of an uninterrupted run."
        ]
    recorded = json.loads((tmp_path / "run" / run_folder.PROVENANCE).read_text())
    assert machines.kind(recorded["machine"]) == here
    assert [part["machine"]["processor"] for part in recorded["continued"]] == ["Zuse Z3"]
    resume(tmp_path / "run", plain=True, simulate=Fake)
    assert told(capsys) == [], "a finished run computes nothing"


def test_a_resumption_with_other_libraries_says_so(
    ray_cluster: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun = provenance.provenance(device="cpu")
    begun["versions"] |= {"torch": "1.0"}
    made = experiment(tmp_path / "run", trials=1, rounds=1, scheduler="none")
    run_directory.create(tmp_path / "run", made, space(), begun)
    resume(tmp_path / "run", plain=True, simulate=Fake, other_versions=True)
    recorded = json.loads((tmp_path / "run" / run_folder.PROVENANCE).read_text())
    assert recorded["versions"]["torch"] == "1.0"
    assert [part["versions"] for part in recorded["continued"]] == [provenance.versions()]
    now = provenance.versions()["torch"]
    assert told(capsys) == [
        f"This run was begun with torch 1.0 and goes on with torch {now}, where the same seed may give other last "
        f"digits: "
        "its numbers may differ from those of an uninterrupted run."
    ]


def test_data_that_are_gone_end_the_search_and_score_no_trial(conduct: Conduct, tmp_path: Path) -> None:
    """They vanish in the middle of a search: the second trial cannot start."""
    rest = {"trials": 3, "scheduler": "none", "sampler": "random", "rounds": 2, "concurrency": 1}
    asked(tmp_path / "calm", **rest)
    data = tmp_path / "data"
    data.touch()
    with pytest.raises(UserError) as told:
        conduct("run", simulate=partial(Gone, data=str(data)), **rest)
    folder = tmp_path / "run"
    assert told.value.problems == (
        f"{data} is gone. The search stopped and keeps what was written; no trial was scored by this. Then go on with "
        f"`fedtune resume {folder}`.",
    )
    assert [trial.state.name for trial in StudyFile(folder).study.trials] == ["COMPLETE", "RUNNING"]
    data.touch()
    assert resume(folder, quiet=True, simulate=Fake).counts == {"COMPLETE": 3}
    assert frozen(folder) == frozen(tmp_path / "calm")


def test_a_damaged_trial_starts_again_with_a_note(
    conduct: Conduct, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rest = {"trials": 2, "scheduler": "none", "sampler": "random", "rounds": 4, "concurrency": 1}
    asked(tmp_path / "calm", **rest)
    flag = tmp_path / "flag"
    flag.touch()
    with pytest.raises(UserError, match="No space left on device"):
        conduct("run", simulate=partial(Full, flag=str(flag)), **rest)
    folder = tmp_path / "run"
    (folder / run_folder.trial_folder(0) / run_folder.CHECKPOINT).write_text("[2, ")
    flag.unlink()
    assert resume(folder, plain=True, simulate=Fake).counts == {"COMPLETE": 2}
    assert "Trial 0 starts again from round 0, as its checkpoint is damaged." in capsys.readouterr().err
    assert frozen(folder) == frozen(tmp_path / "calm")


def test_a_machine_that_does_not_see_the_run_ends_the_search(
    conduct: Conduct, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder is another one under the same path."""

    @contextlib.contextmanager
    def elsewhere(folder: Path) -> Iterator[tuple[Path, str]]:
        yield folder / ".session-unseen", "random"

    rest = {"trials": 3, "scheduler": "none", "sampler": "random", "rounds": 2, "concurrency": 2}
    asked(tmp_path / "calm", **rest)
    with monkeypatch.context() as changed, pytest.raises(UserError) as told:
        changed.setattr(ray_session, "token", elsewhere)
        conduct("run", **rest)
    folder = tmp_path / "run"
    assert told.value.problems[0].startswith(
        f"The machine {socket.gethostname()} does not see the run directory {folder}"
    )
    assert told.value.problems[0].endswith(f"Then go on with `fedtune resume {folder}`.")
    assert {trial.state.name for trial in StudyFile(folder).study.trials} == {"RUNNING"}
    assert not list(folder.glob("trials/*/rounds.jsonl"))
    assert resume(folder, quiet=True, simulate=Fake).counts == {"COMPLETE": 3}
    assert frozen(folder) == frozen(tmp_path / "calm")
