"""`fedtune run`: which configuration it takes."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from analysis.runs import load_run
from fedtune.api.export import export
from fedtune.options import RunRequest
from fedtune.planning.plan import plan
from search_spaces.errors import UserError
from tests.analysis import synthetic


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic.write(tmp_path_factory.mktemp("runs") / "found", trials=8, failures=False)


def test_of_a_run_directory_the_winner_is_trained(
    search: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exactly as if it had been exported first."""
    monkeypatch.chdir(tmp_path)
    export(search, tmp_path / "best.yaml")
    ours = plan(RunRequest(str(search), seeds=2))
    theirs = plan(RunRequest(str(tmp_path / "best.yaml"), seeds=2))
    assert dataclasses.asdict(ours.experiment) == dataclasses.asdict(theirs.experiment)
    assert ours.folder == theirs.folder == tmp_path / "runs" / "found-final"
    run = load_run(search)
    assert run.best is not None
    assert ours.experiment.values["alpha"] == run.parameters(run.best)["alpha"]


def test_single_values_can_be_changed(search: Path, tmp_path: Path) -> None:
    planned = plan(RunRequest(str(search), name=tmp_path / "made", rounds=2, set=("alpha=0.5",), seeds=2))
    assert (planned.experiment.rounds, planned.experiment.values["alpha"]) == (2, 0.5)


def test_a_final_run_has_no_winner(tmp_path: Path) -> None:
    folder = synthetic.write(tmp_path / "final", keys=(), seeds=(1000, 1001), kind="run", failures=False)
    with pytest.raises(UserError, match="is a final run, which has no winner"):
        plan(RunRequest(str(folder), name=tmp_path / "made", seeds=2))


def test_what_is_neither_a_run_nor_a_configuration(search: Path, tmp_path: Path) -> None:
    nowhere = search.with_name("nowhere")
    with pytest.raises(UserError, match=f"neither a run nor an exported configuration '{nowhere}'.* Runs in .*: found"):
        plan(RunRequest(str(nowhere), name=tmp_path / "made", seeds=2))
    with pytest.raises(UserError, match=r"There is no exported configuration '.*nowhere\.yaml'"):
        plan(RunRequest(f"{nowhere}.yaml", name=tmp_path / "made", seeds=2))


def test_a_search_without_a_result_and_a_folder_that_is_no_run(tmp_path: Path, search: Path) -> None:
    begun = synthetic.write(tmp_path / "begun", sampler="grid", rounds=3, cells=1)
    with pytest.raises(UserError, match="no trial that ran to its end"):
        plan(RunRequest(str(begun), name=tmp_path / "made", seeds=2))
    with pytest.raises(UserError, match="is not a run directory"):
        plan(RunRequest(str(tmp_path), name=tmp_path / "made", seeds=2))
    damaged = Path(shutil.copytree(search, tmp_path / "damaged"))
    (damaged / "study.journal").write_bytes(b"x\n")
    with pytest.raises(UserError):
        plan(RunRequest(str(damaged), name=tmp_path / "made", seeds=2))
