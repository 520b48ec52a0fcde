"""What is being done while there are no trials to report on, told wherever something takes seconds: on stderr, or
below a notebook's cell."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from fedtune.console import progress
from fedtune.console.notebook import CellOutput
from fedtune.console.progress import Style

if TYPE_CHECKING:
    from rich.text import Text


@contextmanager
def busy(style: Style, doing: str = "starting") -> Iterator[Callable[..., None]]:
    """Shows what is being done while there are no trials to report on.

    Gives a function `say(text, at_once=False)` that sets what is shown. A terminal shows it immediately, a notebook
    within a second. Where there is neither it is printed as a line every few seconds, and with `at_once` immediately as
    well."""
    started, stop = time.monotonic(), threading.Event()
    live: Any = None
    thread: threading.Thread | None = None

    def told() -> str:
        return f"{time.monotonic() - started:6.1f} s  {doing}"

    cell = CellOutput(lambda: _text(told()))

    def line() -> None:
        print(told(), file=sys.stderr, flush=True)

    def say(text: str, at_once: bool = False) -> None:
        nonlocal doing
        doing = text
        if live is not None:
            live.update(f"{text} …")
        elif at_once and style == "plain":
            line()

    def lines() -> None:
        while not stop.wait(progress.HEARTBEAT / 2):
            line()

    if style == "live":
        from rich.console import Console

        live = Console(stderr=True).status(f"{doing} …")
        live.start()
    elif style == "notebook":
        cell.start()
    elif style == "plain":
        thread = threading.Thread(target=lines, daemon=True)
        thread.start()
    try:
        yield say
    finally:
        stop.set()
        if live is not None:
            live.stop()
        elif style == "notebook":
            cell.stop()
        if thread is not None:
            thread.join()


def reading(doing: str) -> AbstractContextManager[Callable[..., None]]:
    """As `busy`, on a terminal alone: a program that asks for a result gets no line but the result."""
    return busy("live" if progress.style() == "live" else "quiet", doing)


def _text(line: str) -> Text:
    from rich.text import Text

    return Text(line)
