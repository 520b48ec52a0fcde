"""Ctrl-C, SIGTERM and hang-up while a search runs: noted, so that the search ends where it can.

An exception raised in the middle of Ray's start or of its callbacks would be caught there and lost. So the first signal
is only noted, and asked for between two steps. A second Ctrl-C raises `KeyboardInterrupt` wherever the process is.
SIGTERM and hang-up come from something that will not wait long: after a while the process ends without waiting for Ray.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

from search_spaces.errors import INTERRUPTED

#: Seconds that a search may take to end after SIGTERM or hang-up.
PATIENCE = 20.0
#: Seconds within which a second Ctrl-C is the same one, which a program in between has sent once more.
_SAME = 0.5
_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


class Interrupts:
    """While the block runs, `pending` says whether a signal came. In a thread that is not the main one nothing is
    noted, as only the main one is given signals. One that the process was started to ignore (`nohup`) stays so."""

    def __init__(self) -> None:
        self.pending = False
        self._noted = 0.0
        self._before: dict[int, Any] = {}
        self._patience: threading.Timer | None = None

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            known = [getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)]
            self._before = {number: signal.getsignal(number) for number in known}
            self._before = {number: had for number, had in self._before.items() if had not in (signal.SIG_IGN, None)}
        for number in self._before:
            signal.signal(number, self._note)
        return self

    def __exit__(self, *error: object) -> None:
        if self._patience is not None:
            self._patience.cancel()
        for number, had in self._before.items():
            signal.signal(number, had)

    def check(self) -> None:
        """Raises `KeyboardInterrupt` where a signal came."""
        if self.pending:
            raise KeyboardInterrupt

    def _note(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGINT and self.pending and time.monotonic() - self._noted > _SAME:
            raise KeyboardInterrupt
        if number != signal.SIGINT and self._patience is None:
            self._patience = threading.Timer(PATIENCE, os._exit, (INTERRUPTED,))
            self._patience.daemon = True
            self._patience.start()
        if number == getattr(signal, "SIGHUP", None):
            _silence()
        if not self.pending:
            self.pending, self._noted = True, time.monotonic()


def _silence() -> None:
    """The terminal is gone, and writing to it would fail: what is still said goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            if stream.isatty() or not _is_open(stream.fileno()):
                os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _is_open(descriptor: int) -> bool:
    """Whether something can be written; a terminal that is gone refuses even nothing."""
    try:
        os.write(descriptor, b"")
    except OSError:
        return False
    return True
