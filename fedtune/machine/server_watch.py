"""Whether Ray's servers are there, and what happens when one dies under a search.

They are the one that keeps the cluster's state (GCS), and the one of this machine that starts its processes (raylet).

Where one of them dies, Ray itself waits: of a dead raylet it says nothing, and a minute after the death of the GCS it
ends this process. So a thread tries every second whether both still take a connection. A process that is slow takes
connections all the same, as the system does that for it; only one that is gone refuses them.

Then the search ends with a sentence and exit code 3, and so it does where Ray does not start. The main thread leaves as
soon as Ray calls it. Where Ray keeps it waiting for the server that is gone, the process ends without it; Ray would end
it as well, a minute after the death, and say nothing of the run.

A signal to all processes of a terminal or of a job, as `timeout` and batch systems send it, ends the servers too. Then
the search was interrupted, and no server was lost.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from search_spaces.errors import INTERRUPTED, UserError, visible
from search_spaces.shell import quote

#: Seconds between two attempts, and for one of them.
EVERY, ATTEMPT = 1.0, 3.0
#: How long a server may be out of reach, in seconds. Nothing starts those of our own again; a cluster's may be started
#: again, or its network be away for a moment.
OWN, CLUSTER = 1.5, 10.0
#: Seconds that the main thread has to leave Ray, and where the search was interrupted.
LEAVING, SOON = 12.0, 3.0


def patience(address: str | None) -> float:
    """With the servers at `address`, or with those of our own."""
    return OWN if address is None else CLUSTER


class ServersLost(UserError):
    """A server of Ray has died under a search, or none started. Exit code 3."""

    exit_code = 3


class NotStarted(ServersLost):
    """A Ray of our own did not start."""


class ServerWatch:
    """Calls `lost`, from a thread of its own once, with the name of a server that died while the block runs."""

    def __init__(self, lost: Callable[[str], None], *, patience: float) -> None:
        self._lost, self._patience = lost, patience
        self._ended = threading.Event()
        self._places = _places()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> ServerWatch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()

    def gone(self) -> str | None:
        """The name of a server that does not answer now."""
        return next((name for name, place in self._places.items() if not _answers(place)), None)

    def lost(self) -> bool:
        """Whether a server does not answer now, which is told at once, as after the death of what it started."""
        if (name := self.gone()) is not None:
            self._lost(name)
        return name is not None

    def _run(self) -> None:
        seen = time.monotonic()
        while not self._ended.wait(EVERY):
            name = self.gone()
            if name is None:
                seen = time.monotonic()
            elif time.monotonic() - seen > self._patience:
                self._lost(name)
                return


def _places() -> dict[str, tuple[str, int]]:
    """Where the servers of the Ray that was joined listen, by name."""
    import ray

    api: Any = ray  # parts of it are not typed
    context = api.get_runtime_context()
    here = context.get_node_id()
    node = next(node for node in api.nodes() if node["NodeID"] == here)
    host, _, port = context.gcs_address.rpartition(":")
    return {
        "GCS": (host.strip("[]"), int(port)),
        "raylet": (node["NodeManagerAddress"], node["NodeManagerPort"]),
    }


def _answers(place: tuple[str, int]) -> bool:
    try:
        with contextlib.closing(socket.create_connection(place, timeout=ATTEMPT)):
            return True
    except OSError:
        return False


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


class ServerLoss:
    """Which server of Ray died, if one did, until the block ends: then Ray has been left."""

    def __init__(
        self, again: str, leave: Callable[[int], object] = os._exit, *, interrupted: Callable[[], bool] = lambda: False
    ) -> None:
        """again: the command that goes on. leave: ends the process with an exit code. interrupted: whether a signal has
        come that ends the search."""
        self.server: str | None = None
        self.again = again
        self._interrupted, self._leave = interrupted, leave
        self._patience: threading.Timer | None = None

    def __enter__(self) -> ServerLoss:
        return self

    def __exit__(self, *error: object) -> None:
        if self._patience is not None:
            self._patience.cancel()

    def note(self, server: str) -> None:
        """A server has died. From any thread, and more than once."""
        if self.server is None:
            self.server = server
            self._patience = threading.Timer(SOON if self._interrupted() else LEAVING, self._end)
            self._patience.daemon = True
            self._patience.start()

    def check(self) -> None:
        """Raises `ServersLost` where a server has died, `KeyboardInterrupt` where the search was interrupted."""
        if self.server is not None:
            raise KeyboardInterrupt if self._interrupted() else ServersLost(self._sentence())

    def _sentence(self) -> str:
        return (
            f"Ray's {self.server} died, and nothing runs without it. The search stopped and keeps what was written; no "
            f"trial was scored by this. Go on with `{self.again}`."
        )

    def _end(self) -> None:
        interrupted = self._interrupted()
        why = f"Interrupted. Go on with `{self.again}`." if interrupted else self._sentence()
        print(visible(why), file=sys.stderr, flush=True)
        self._leave(INTERRUPTED if interrupted else ServersLost.exit_code)
