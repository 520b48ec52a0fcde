"""The examples that `fedtune new` writes: their tests pass, they can be searched, and nothing is overwritten."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fedtune
from fedtune.api.new import KINDS
from fedtune.options import SearchRequest
from fedtune.planning.plan import plan
from search_spaces.errors import UserError


@pytest.fixture(autouse=True)
def place(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(workplace))
    yield workplace
    sys.modules.pop("mine", None)


@pytest.mark.parametrize("kind", KINDS)
def test_its_test_passes_and_it_can_be_searched(place: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    written, test = fedtune.new(kind, "mine")
    found = [one for name, one in runpy.run_path(str(test)).items() if name.startswith("test_")]
    assert len(found) == 1  # what pytest runs, and Python as well, which every installation has
    runpy.run_path(str(test), run_name="__main__")
    assert capsys.readouterr().out == "The test passes.\n"
    settings: tuple[str, ...] = ("clients=3", "omega=1")
    asked: dict[str, object] = {"dataset": "digits", "set": settings}
    if kind == "model":
        asked["set"] = (*settings, f"model=./{written.name}:Net")
    elif kind == "space":
        asked["space"] = written.name
    elif kind == "dataset":
        runpy.run_path(str(written), run_name="__main__")
        asked = {"dataset": "mine.npz", "client": "client"}
    method = f"./{written.name}" if kind == "method" else "fedavg"
    made = plan(SearchRequest(method, rounds=1, **asked))  # type: ignore[arg-type]
    assert made.experiment.method == ("mine" if kind == "method" else "fedavg")
    if kind == "method":
        assert "server_lr" in made.space.search


def test_nothing_is_overwritten_or_half_written(place: Path) -> None:
    (place / "test_mine.py").write_text("mine\n")
    with pytest.raises(UserError, match=r"test_mine.py is there already"):
        fedtune.new("method", "mine")
    assert [path.name for path in place.iterdir()] == ["test_mine.py"]
    for kind, name, said in (
        ("methods", "other", "Unknown kind 'methods'. Did you mean 'method'"),
        ("method", "my-method", "name must be a Python name, such as mymethod, got 'my-method'"),
        ("method", "class", "name must be a Python name"),
    ):
        with pytest.raises(UserError, match=said):
            fedtune.new(kind, name)
