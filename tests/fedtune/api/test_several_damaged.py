"""Folders of `fedtune auto` and `fedtune reproduce` in which something is damaged: what is written again, and what is
refused before anything is written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fedtune.api.resume import resume
from search_spaces import run_folder
from search_spaces.errors import UserError
from tests.fedtune.fake import Fake, OfTable
from tests.fedtune.played import play
from tests.security.prepared import CELLS, Stopped, again, several, stop_before_ray, table
from tests.unchanged import unchanged


def other_data(run: Path) -> None:
    """The record of the run says that it was begun with other data."""
    path = run / run_folder.PROVENANCE
    recorded = json.loads(path.read_text())
    recorded["dataset"]["hash"] = "another"
    path.write_text(json.dumps(recorded))


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A search over one method whose fresh seeds are about to be run."""
    folder = several(tmp_path / "run", searched=True)
    stop_before_ray(monkeypatch)
    with pytest.raises(Stopped):
        resume(folder, quiet=True, simulate=Fake)
    return folder


@pytest.mark.parametrize(
    "damage",
    [
        Path.unlink,
        lambda path: shutil.rmtree(path.parent),
        lambda path: path.write_text(""),
        lambda path: path.write_text("method: fedprox\n"),
    ],
    ids=["gone", "gone with its folder", "empty", "another"],
)
def test_the_best_configuration_is_written_again(fresh: Path, damage: Callable[[Path], object]) -> None:
    best = fresh / run_folder.BEST / "fedavg.yaml"
    whole = best.read_bytes()
    damage(best)
    with pytest.raises(Stopped):
        resume(fresh, quiet=True, simulate=Fake)
    assert best.read_bytes() == whole


def test_a_file_in_the_place_of_the_folder_of_best_configurations_is_refused(fresh: Path) -> None:
    shutil.rmtree(fresh / run_folder.BEST)
    (fresh / run_folder.BEST).write_text("x")
    with unchanged(fresh), pytest.raises(UserError, match="best must be a folder, got a file"):
        resume(fresh, quiet=True, simulate=Fake)


def test_a_folder_in_the_place_of_the_best_configuration_is_refused_before_anything_is_written(fresh: Path) -> None:
    best = fresh / run_folder.BEST / "fedavg.yaml"
    best.unlink()
    best.mkdir()
    with unchanged(fresh), pytest.raises(UserError, match=r"best/fedavg.yaml must be a file, got a folder"):
        resume(fresh, quiet=True, simulate=Fake)


def test_a_file_in_the_place_of_fresh_seeds_is_refused_before_anything_is_written(fresh: Path) -> None:
    folder = fresh / run_folder.FRESH / "fedavg"
    shutil.rmtree(folder)
    folder.write_text("x")
    with unchanged(fresh), pytest.raises(UserError, match="that is not a directory"):
        resume(fresh, quiet=True, simulate=Fake)


def test_fresh_seeds_begun_with_other_data_do_not_go_on(fresh: Path) -> None:
    other_data(fresh / run_folder.FRESH / "fedavg")
    with unchanged(fresh), pytest.raises(UserError, match="hash another"):
        resume(fresh, quiet=True, simulate=Fake)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A reproduction of two cells, of which the first has ended."""
    folder = table(monkeypatch, tmp_path)
    play(folder / run_folder.CELLS / CELLS[0], simulate=OfTable)
    stop_before_ray(monkeypatch)
    return folder


def test_a_finished_cell_is_not_computed_again_on_other_data(made: Path) -> None:
    """Its rows are gone, so it is to be computed again; as long as they were there, nothing was asked of its data."""
    cell = made / run_folder.CELLS / CELLS[0]
    other_data(cell)
    with pytest.raises(Stopped):
        again(made)
    (cell / run_folder.trial_folder(0) / run_folder.ROUNDS).unlink()
    with unchanged(made), pytest.raises(UserError, match="hash another"):
        again(made)


def test_a_torn_cell_is_refused_before_another_one_is_made(made: Path) -> None:
    cells = made / run_folder.CELLS
    shutil.rmtree(cells / CELLS[1])
    (cells / CELLS[0] / run_folder.SPACE).write_text("{")
    with unchanged(made), pytest.raises(UserError, match=r"space\.json"):
        again(made)


def test_a_folder_in_the_place_of_a_table_is_refused_before_anything_is_written(made: Path) -> None:
    (made / run_folder.VERDICTS).mkdir()
    with unchanged(made), pytest.raises(UserError, match=r"verdicts\.csv must be a file, got a folder"):
        again(made)
