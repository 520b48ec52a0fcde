"""Whether Ray's servers are there: the one that keeps the cluster's state (GCS), and the one of this machine that
starts its processes (raylet).

Where one of them dies, Ray itself waits: of a dead raylet it says nothing, and a minute after the death of the GCS it
ends this process. So a thread tries every second whether both still take a connection. A process that is slow takes
connections all the same, as the system does that for it; only one that is gone refuses them.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from search_spaces.errors import UserError

#: Seconds between two attempts, and for one of them.
EVERY, ATTEMPT = 1.0, 3.0
#: How long a server may be out of reach, in seconds. Nothing starts those of our own again; a cluster's may be started
#: again, or its network be away for a moment.
OWN, CLUSTER = 1.5, 10.0


def patience(address: str | None) -> float:
    """With the servers at `address`, or with those of our own."""
    return OWN if address is None else CLUSTER


class ServersLost(UserError):
    """A server of Ray has died under a search, or none started. Exit code 3."""

    exit_code = 3


class NotStarted(ServersLost):
    """A Ray of our own did not start."""


class Watch:
    """Calls `lost` once, from a thread of its own, with the name of a server that died while the block runs."""

    def __init__(self, lost: Callable[[str], None], *, patience: float) -> None:
        self._lost, self._patience = lost, patience
        self._ended = threading.Event()
        self._places = _places()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()

    def gone(self) -> str | None:
        """The name of a server that does not answer now."""
        return next((name for name, place in self._places.items() if not _answers(place)), None)

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
