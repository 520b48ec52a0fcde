"""Progress below a notebook's cell, and errors as it shows them, with a notebook that only notes what it is asked."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.text import Text

from fedtune.console import notebook, progress
from fedtune.console.busy import busy
from fedtune.console.notebook import CellOutput
from fedtune.console.progress import ProgressDisplay
from fedtune.execution.ray_hooks import SilentReporter
from search_spaces.errors import UserError
from tests.fedtune.conftest import experiment


class Cell:
    """The output below a cell: all that was drawn in it, in order."""

    def __init__(self) -> None:
        self.drawn: list[dict[str, str]] = []
        self.redrawn = threading.Event()

    def display(self, bundle: dict[str, str], *, raw: bool, display_id: bool) -> Cell:
        assert raw and display_id and not self.drawn
        self.drawn.append(bundle)
        return self

    def update(self, bundle: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.drawn.append(bundle)
        self.redrawn.set()

    @property
    def text(self) -> str:
        return self.drawn[-1]["text/plain"]


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Cell:
    made = Cell()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=made.display))
    monkeypatch.setattr(notebook, "EVERY", 0.01)
    return made


def test_an_output_is_drawn_anew_and_its_last_state_stays(cell: Cell) -> None:
    words = ["one"]
    output = CellOutput(lambda: Text(words[-1], "bold"))
    output.start()
    assert cell.drawn[0]["text/plain"] == "one\n" and "font-weight: bold" in cell.drawn[0]["text/html"]
    words.append("<two>")
    assert cell.redrawn.wait(60) and cell.text == "<two>\n" and "&lt;two&gt;" in cell.drawn[-1]["text/html"]
    words.append("three")
    output.stop()
    assert cell.text == "three\n"
    assert [bundle["text/plain"].strip() for bundle in cell.drawn][-3:] == ["one", "<two>", "three"]


def test_nothing_new_is_not_sent(cell: Cell) -> None:
    drawings: list[int] = []
    thrice = threading.Event()

    def draw() -> Text:
        drawings.append(1)
        if len(drawings) >= 3:
            thrice.set()
        return Text("as before")

    output = CellOutput(draw)
    output.start()
    assert thrice.wait(60)
    output.stop()
    assert len(cell.drawn) == 1


def test_a_search_is_drawn_below_its_cell(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    told = ProgressDisplay(experiment(Path("/r"), trials=3), "notebook")
    told.say("a word")
    with told:
        assert "starting Ray" in cell.text
        told.started(0, {"alpha": 0.25})
        told.finished(0, "COMPLETE", (0.5,), None)
    assert "best 50.00 % (trial 0)  1 of 3 trials: 1 done" in cell.text
    assert capsys.readouterr() == ("a word\n", ""), "stderr looks like a fault in a notebook"


def test_what_is_being_done_is_drawn_too(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    with busy("notebook", "planning") as say:
        assert "s  planning" in cell.text
        say("timing a round")
    assert "s  timing a round" in cell.text and capsys.readouterr() == ("", "")


def test_the_style_of_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    assert progress.style() == "plain"
    monkeypatch.setattr(progress, "is_notebook", lambda: True)
    assert (progress.style(), progress.style(plain=True), progress.style(quiet=True)) == ("notebook", "plain", "quiet")


def test_only_a_kernel_is_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins

    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert not notebook.is_notebook()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace())
    assert not notebook.is_notebook(), "IPython is imported, and nothing runs in it"
    for name, is_one in (("TerminalInteractiveShell", False), ("ZMQInteractiveShell", True)):
        shell: Any = type(name, (), {})()
        monkeypatch.setattr(builtins, "get_ipython", lambda shell=shell: shell, raising=False)
        assert notebook.is_notebook() is is_one


def test_an_error_is_its_sentences_alone() -> None:
    error = UserError("trials must be at least 1, got 0.", "a\x1b[2Jb")
    assert error._render_traceback_() == ["trials must be at least 1, got 0.", "a\\u001b[2Jb"]


def test_tune_does_not_report() -> None:
    assert SilentReporter().should_report([], done=True) is False
