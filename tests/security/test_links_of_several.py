"""Links in the folders that hold several runs, those of `fedtune auto` and `fedtune reproduce`, and in place of models:
nothing elsewhere is read, overwritten or deleted, as in a run directory (`test_links.py`)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import fedtune
from analysis.report import report
from analysis.reproduce.declaration import declared
from analysis.reproduce.folder import cell_name, load_made
from fedtune.api.resume import resume
from fedtune.api.status import status
from search_spaces import run_folder
from search_spaces.errors import UserError
from tests.fedtune.conftest import start
from tests.fedtune.fake import Fake
from tests.security.prepared import several
from tests.security.test_links import SECRET, linked
from tests.unchanged import unchanged
from trainables import models
from trainables.zoo import Card, load_model, save_model

TABLE = "fedkf-table12"
CELL = cell_name(declared(TABLE), declared(TABLE).rows[0], declared(TABLE).places[0])


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """With what a killed process would have left where the cells lie."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "file").write_text(f"secret: {SECRET}\n")
    for name in (CELL, "fedavg.yaml"):
        (folder / f".{name}.0123456789abcdef.tmp").write_text(SECRET)
    return folder


def refused(folder: Path, name: str, target: Path, command: Callable[[Path], object]) -> None:
    linked(folder, name, target)
    with unchanged(target, folder), pytest.raises(UserError, match="symbolic link") as told:
        command(folder)
    assert str(folder / name) in str(told.value) and SECRET not in str(told.value)


@pytest.fixture(scope="module")
def auto(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return several(tmp_path_factory.mktemp("auto") / "run", searched=True)


#: What is linked, and whether the link leads to the folder or to the file in it.
AUTO = {
    run_folder.AUTO: "file",
    run_folder.LOCK: "file",
    run_folder.REPORT: "file",
    run_folder.SEARCHES: "",
    f"{run_folder.SEARCHES}/fedavg": "",
    f"{run_folder.SEARCHES}/fedavg/{run_folder.EXPERIMENT}": "file",
    run_folder.BEST: "",
    f"{run_folder.BEST}/fedavg.yaml": "file",
    run_folder.FRESH: "",
    f"{run_folder.FRESH}/fedavg": "",
    run_folder.FINAL: "",
    f"{run_folder.FINAL}/fedavg": "",
}
COMMANDS: dict[str, Callable[[Path], object]] = {
    "resume": lambda folder: resume(folder, quiet=True, simulate=Fake),
    "report": report,
    "status": status,
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", AUTO)
def test_no_link_is_followed_in_a_search_over_methods(
    auto: Path, tmp_path: Path, elsewhere: Path, name: str, command: str
) -> None:
    shutil.copytree(auto, tmp_path / "run")
    refused(tmp_path / "run", name, elsewhere / AUTO[name], COMMANDS[command])


MADE = {
    run_folder.REPRODUCTION: "file",
    run_folder.LOCK: "file",
    run_folder.REPORT: "file",
    run_folder.VERDICTS: "file",
    run_folder.NUMBERS: "file",
    **dict.fromkeys(run_folder.TABLES.values(), "file"),
    run_folder.CELLS: "",
    f"{run_folder.CELLS}/{CELL}": "",
}


@pytest.mark.parametrize("command", ["reproduce", "read"])
@pytest.mark.parametrize("name", MADE)
def test_no_link_is_followed_in_a_reproduction(tmp_path: Path, elsewhere: Path, name: str, command: str) -> None:
    folder = tmp_path / f"{TABLE}-small"
    (folder / run_folder.CELLS).mkdir(parents=True)
    (folder / run_folder.REPRODUCTION).write_text("version: 1\n")
    start(folder / run_folder.CELLS / CELL)

    def again(folder: Path) -> object:
        return fedtune.reproduce(TABLE, small=True, runs_dir=str(folder.parent), quiet=True)

    refused(folder, name, elsewhere / MADE[name], again if command == "reproduce" else load_made)


@pytest.mark.parametrize("name", ["model.safetensors", "model.json"])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_no_model_is_read_through_a_link(tmp_path: Path, name: str, kind: str) -> None:
    card = Card("lenet5", (1, 8, 8), 2, (0.0,), (1.0,))
    weights = models.build("lenet5", (1, 8, 8), 2).state_dict()
    path = tmp_path / "model.safetensors"
    save_model(path, weights, card)
    assert all(torch.equal(weights[key], value) for key, value in load_model(path)[0].state_dict().items())
    (tmp_path / name).rename(tmp_path / "moved")
    if kind == "link":
        (tmp_path / name).symlink_to(tmp_path / "moved")
    else:
        os.mkfifo(tmp_path / name)
    with pytest.raises(UserError) as told:
        load_model(path)
    assert str(tmp_path / name) in str(told.value)
    if kind == "link":
        assert "it is a symbolic link" in str(told.value)
