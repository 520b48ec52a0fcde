"""Progress below a notebook's cell: one output that is drawn anew in its place, instead of a line every few seconds.

Nothing but IPython is needed, which every notebook has; rich draws what is shown.
"""

from __future__ import annotations

import importlib
import io
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType

#: Seconds between two drawings. A drawing that is as the one before is not sent.
EVERY = 1.0
#: Characters in a line; a notebook scrolls what is wider than its page.
WIDTH = 110
_HTML = '<pre style="white-space: pre; overflow-x: auto; line-height: normal">{code}</pre>'


def is_notebook() -> bool:
    """Whether this process is a notebook's kernel, whose outputs can be drawn anew."""
    if "IPython" not in sys.modules:  # which every kernel has imported; rich need not be, then
        return False
    from rich.console import Console

    return Console(stderr=True).is_jupyter


class CellOutput:
    """Between `start` and `stop` what `draw` returns is shown below the cell, and what it returns at `stop` stays."""

    def __init__(self, draw: Callable[[], RenderableType]) -> None:
        self._draw = draw
        self._shown: dict[str, str] = {}
        self._handle: Any = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._shown = self._drawn()
        shell: Any = importlib.import_module("IPython.display")  # is there, and only there, where this is a notebook
        self._handle = shell.display(self._shown, raw=True, display_id=True)
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self._refresh()

    def _refresh(self) -> None:
        """Draws now, where there is something new."""
        drawn = self._drawn()
        if drawn != self._shown:
            self._shown = drawn
            self._handle.update(drawn, raw=True)

    def _beat(self) -> None:
        while not self._stop.wait(EVERY):
            self._refresh()

    def _drawn(self) -> dict[str, str]:
        """As a notebook stores it: HTML, and plain text for readers of the file."""
        from rich.console import Console

        console = Console(file=io.StringIO(), record=True, width=WIDTH, color_system="truecolor", force_jupyter=False)
        console.print(self._draw())
        html = console.export_html(inline_styles=True, code_format=_HTML, clear=False)
        return {"text/html": html, "text/plain": console.export_text()}
