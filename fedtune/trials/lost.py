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
from shlex import quote

from fedtune.machine.servers import NotStarted, ServersLost
from search_spaces.errors import visible

#: Seconds that the main thread has to leave Ray.
PATIENCE = 12.0


@contextlib.contextmanager
def kept(folder: Path) -> Iterator[None]:
    """Where a Ray does not start inside, the sentence also says how the run in `folder`, which is there, goes on."""
    try:
        yield
    except NotStarted as error:
        raise ServersLost(
            f"{error} The search stopped and keeps what was written; no trial was scored by this. Then go on with "
            f"`fedtune resume {quote(str(folder))}`."
        ) from error


class Lost:
    """Of the run in `folder`: which server died, if one did."""

    def __init__(self, folder: Path, leave: Callable[[int], object] = os._exit) -> None:
        """leave: ends the process with an exit code."""
        self.server: str | None = None
        self._folder, self._leave = folder, leave
        self._patience: threading.Timer | None = None

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

    def over(self) -> None:
        """Ray has been left."""
        if self._patience is not None:
            self._patience.cancel()

    def _sentence(self) -> str:
        return (
            f"Ray's {self.server} died, and nothing runs without it. The search stopped and keeps what was written; no "
            f"trial was scored by this. Go on with `fedtune resume {quote(str(self._folder))}`."
        )

    def _end(self) -> None:
        print(visible(self._sentence()), file=sys.stderr, flush=True)
        self._leave(ServersLost.exit_code)
