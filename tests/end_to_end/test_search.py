"""The real command line, real Ray, the real engine on a toy data set: what a user does, and what happens when it is cut
short."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import optuna
import pytest

from search_spaces import run_folder
from tests import forked
from tests.end_to_end.cli import anew, background, fedtune, searching, wait_for_rounds
from tests.fedtune.conftest import frozen
from tests.study_file import journal

#: Selecting by a loss: on so small a validation share accuracies tie, and nothing would be stopped early. Nor is
#: anything with seed 0, where every trial that may be stopped happens to be among the best so far.
BUDGET = ("--trials", 8, "--rounds", 8, "--seeds", 2, "--no-race", "--metric", "global_loss", "--seed", 1)
BUDGET = (*BUDGET, "--slots", 2)


@pytest.fixture(scope="module")
def whole(toy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted search, one trial at a time."""
    cwd = tmp_path_factory.mktemp("whole")
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})  # there two slots have room for one trial
    try:
        done = anew(*searching(toy, "whole", *BUDGET), cwd=cwd)
    finally:
        os.sched_setaffinity(0, cores)
    assert done.returncode == 0, done.stderr
    return cwd / "runs" / "whole"


def test_the_record_of_a_search(whole: Path) -> None:
    study = optuna.load_study(study_name=None, storage=journal(whole))
    assert len(study.trials) == 8 and study.best_value > 0
    assert {path.name for path in whole.iterdir()} == {
        run_folder.EXPERIMENT,
        run_folder.SPACE,
        run_folder.PROVENANCE,
        run_folder.STUDY,
        run_folder.TRIALS,
        run_folder.LOCK,
    }
    assert any(trial.state == optuna.trial.TrialState.PRUNED for trial in study.trials)
    for trial in study.trials:
        folder = whole / run_folder.trial_folder(trial.number)
        assert {path.name for path in folder.iterdir()} >= {
            run_folder.CONFIG,
            run_folder.PARTITION,
            run_folder.ROUNDS,
            run_folder.LOG,
        }
        # One that was stopped early does not go on.
        assert run_folder.has_ended(folder) == (trial.state == optuna.trial.TrialState.PRUNED)
        assert trial.user_attrs["stop_reason"] in ("completed", "scheduler")
        assert trial.last_step == trial.user_attrs["rounds"]
    provenance = json.loads((whole / run_folder.PROVENANCE).read_text())
    assert (
        provenance["versions"]["torch"]
        and provenance["dataset"]["hash"]
        and provenance["partition"]["1000"]
        and provenance["device"] == "cpu"
    )


@pytest.mark.guard("a whole search, killed and gone on with")
def test_kill_and_resume_is_uninterrupted(whole: Path, toy: Path, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "killed"
    process = background(toy, tmp_path, "killed", *BUDGET)
    wait_for_rounds(folder, 30, process)
    process.kill()
    process.wait()
    status = json.loads(fedtune("status", folder, "--json", cwd=tmp_path).stdout)
    assert status["state"] == "resumable" and status["running"]
    moved = tmp_path / "elsewhere"
    folder.rename(moved)
    done = fedtune("resume", moved, cwd=Path("/"))
    assert done.returncode == 0, done.stderr
    assert frozen(moved) == frozen(whole)
    assert json.loads(fedtune("status", moved, "--json", cwd=tmp_path).stdout)["state"] == "finished"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_cleanly(whole: Path, toy: Path, tmp_path: Path, number: signal.Signals) -> None:
    folder = tmp_path / "runs" / "cut"
    process = background(toy, tmp_path, "cut", *BUDGET)
    wait_for_rounds(folder, 40, process)
    # A terminal sends Ctrl-C to the whole group, an init system SIGTERM to the process.
    (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, (out, err)
    assert "Go on with: fedtune resume runs/cut" in out and "Traceback" not in err
    assert {
        t.user_attrs.get("stop_reason") for t in optuna.load_study(study_name=None, storage=journal(folder)).trials
    } >= {"interrupted"}
    assert fedtune("resume", folder, cwd=tmp_path).returncode == 0
    assert frozen(folder) == frozen(whole)


@pytest.mark.guard("from a search to the winner, trained for real")
def test_export_and_final_run(whole: Path, toy: Path, tmp_path: Path) -> None:
    done = fedtune("export", whole, "-o", "best.yaml", cwd=tmp_path)
    assert done.returncode == 0 and "best.yaml" in done.stdout, done.stderr
    done = fedtune("run", "best.yaml", "--seeds", 2, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["seeds"] == [1_000_000_000, 1_000_000_001] and len(found["models"]) == 2
    assert (
        len(found["metrics"]["global_accuracy"]["values"]) == 2
        and found["metrics"]["global_accuracy"]["std"] is not None
    )
    code = (
        f"from fedtune import load_model; model, card = load_model({found['models'][0]!r}); "
        "import torch; print(model((torch.zeros(4, *card.shape) / 255 - card.mean) / card.std).shape, "
        "model.training, card.details['round'])"
    )
    loaded = forked.run(["-c", code], cwd=tmp_path)
    assert loaded.stdout.startswith("torch.Size([4, 4]) False "), loaded.stderr
    # The saved model is that of the round with the best validation value, of equal ones the first.
    folder = Path(found["models"][0]).parent
    rows = [json.loads(line) for line in (folder / run_folder.ROUNDS).read_text().splitlines()]
    best = min(rows, key=lambda row: (row["val_global_loss"], row["round"]))
    card = json.loads(Path(found["models"][0]).with_suffix(".json").read_text())
    assert card["round"] == best["round"] and card["metrics"]["val_global_loss"] == best["val_global_loss"]
    table = fedtune("resume", found["folder"], cwd=tmp_path)
    assert table.returncode == 0 and "Global accuracy" in table.stdout and " ± " in table.stdout
