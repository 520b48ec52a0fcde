"""Commands that read runs and draw say what they are doing: the work lies within `busy`, what is printed after it."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from analysis import pivots
from analysis.loaded import Loaded
from fedtune.api import watch
from fedtune.cli import app
from fedtune.console import busy
from fedtune.option import Asked
from tests.analysis import varied


class Seen:
    """What is told, and what is called while something is."""

    def __init__(self) -> None:
        self.open = False
        self.told: list[str] = []
        self.calls: list[tuple[str, bool]] = []

    @contextmanager
    def busy(self, style: str, doing: str = "starting") -> Iterator[Callable[[str], None]]:
        self.open = True
        self.told.append(doing)
        yield self.told.append
        self.open = False

    def noting(self, name: str, called: Callable[..., Any]) -> Callable[..., Any]:
        def note(*given: Any, **options: Any) -> Any:
            self.calls.append((name, self.open))
            asked = bool(given) and isinstance(given[0], Asked)  # a command has its request already
            return (inspect.unwrap(called) if asked else called)(*given, **options)

        return note


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    found = Seen()
    monkeypatch.setattr(busy, "busy", found.busy)
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return varied.fairness(tmp_path_factory.mktemp("runs") / "fairness")


def call(*words: object) -> str:
    done = CliRunner().invoke(app, [*map(str, words)])
    assert done.exit_code == 0, done.output
    return done.output


def test_one_figure_or_table(run: Path, tmp_path: Path, seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Loaded, "save", seen.noting("save", Loaded.save))
    call("figure", "pivot", run, "-o", tmp_path / "x.csv")
    assert seen.calls == [("save", True)] and seen.told[-1] == "drawing pivot"


def test_a_table_of_conditions(run: Path, tmp_path: Path, seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pivots, "of_runs", seen.noting("of_runs", pivots.of_runs))
    monkeypatch.setattr(pivots.Pivots, "page", seen.noting("page", pivots.Pivots.page))
    call("compare", run, "--by", "omega", "--figure", tmp_path / "x.html")
    assert seen.calls == [("of_runs", True), ("page", True)]
    assert seen.told == ["reading the runs", "comparing the runs", "drawing figures"]


def test_the_first_page_that_is_watched(run: Path, seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is there before the address is told; what serves it does not say anything."""
    monkeypatch.setattr(watch, "document", seen.noting("document", lambda runs, tell: tell("drawing") or "page"))
    monkeypatch.setattr(watch, "serve", seen.noting("serve", lambda made: made.server_close()))
    assert "Report: http://127.0.0.1:" in call("report", run, "--watch")
    assert seen.calls == [("document", True), ("serve", False)] and seen.told[-1] == "drawing"


@pytest.mark.parametrize(
    ("words", "module", "name", "doing"),
    [
        (("status", "{run}"), "fedtune.api.status", "how_far", "reading the run"),
        (("runs", "{folder}"), "fedtune.api.status", "runs", "reading the runs"),
        (("export", "{run}", "--where", "omega=0.1"), "fedtune.api.export", "export", "reading the run"),
    ],
    ids=("status", "runs", "export"),
)
def test_reading_a_run(
    words: tuple[str, ...],
    module: str,
    name: str,
    doing: str,
    run: Path,
    seen: Seen,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded = importlib.import_module(module)
    monkeypatch.setattr(loaded, name, seen.noting(name, getattr(loaded, name)))
    call(*(word.format(run=run, folder=run.parent) for word in words))
    assert (name, True) in seen.calls and seen.told == [doing]


@pytest.mark.parametrize(("terminal", "style"), [(True, "live"), (False, "quiet")])
def test_reading_is_told_on_a_terminal_alone(terminal: bool, style: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that waits for a result gets nothing else on stderr."""
    used: list[str] = []
    monkeypatch.setattr(busy, "busy", lambda style, doing: used.append(style))
    monkeypatch.setattr(busy.progress, "style", lambda: "live" if terminal else "plain")
    busy.reading("reading the run")
    assert used == [style]
