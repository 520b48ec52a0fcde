"""What happens when a server of Ray dies under a search, or never starts: the search ends, with a sentence and exit
code 3.

The main thread leaves as soon as Ray calls it. Where Ray keeps it waiting for the server that is gone, the process ends
without it; Ray would end it as well, a minute after the death, and say nothing of the run.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from fedtune.machine.servers import NotStarted, ServersLost
from search_spaces.errors import visible
from search_spaces.shell import quote

#: Seconds that the main thread has to leave Ray.
PATIENCE = 12.0


def resuming(folder: Path) -> str:
    """The command that goes on with the run in `folder`."""
    return f"fedtune resume {quote(str(folder))}"


@contextlib.contextmanager
def kept(again: str) -> Iterator[None]:
    """Where a Ray does not start inside, the sentence also says that `again` goes on with what is there."""
    try:
        yield
    except NotStarted as error:
        raise ServersLost(
            f"{error} The search stopped and keeps what was written; no trial was scored by this. Then go on with "
            f"`{again}`."
        ) from error


class Lost:
    """Which server of Ray died, if one did, until the block ends: then Ray has been left."""

    def __init__(self, again: str, leave: Callable[[int], object] = os._exit) -> None:
        """again: the command that goes on. leave: ends the process with an exit code."""
        self.server: str | None = None
        self.again = again
        self._leave = leave
        self._patience: threading.Timer | None = None

    def __enter__(self) -> Lost:
        return self

    def __exit__(self, *error: object) -> None:
        if self._patience is not None:
            self._patience.cancel()

    def note(self, server: str) -> None:
        """A server has died. From any thread, and more than once."""
        if self.server is None:
            self.server = server
            self._patience = threading.Timer(PATIENCE, self._end)
            self._patience.daemon = True
            self._patience.start()

    def check(self) -> None:
        """Raises `ServersLost` where a server has died."""
        if self.server is not None:
            raise ServersLost(self._sentence())

    def _sentence(self) -> str:
        return (
            f"Ray's {self.server} died, and nothing runs without it. The search stopped and keeps what was written; no "
            f"trial was scored by this. Go on with `{self.again}`."
        )

    def _end(self) -> None:
        print(visible(self._sentence()), file=sys.stderr, flush=True)
        self._leave(ServersLost.exit_code)
