"""The processes of a search, as /proc shows them, and the end of one of them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

#: In the environment of every process of the campaign: its own name, by which what is left of it is found again.
MARK = "FEDTUNE_FAULTS"


def _status(pid: int) -> tuple[str, int] | None:
    """State and parent of a process."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return fields[0], int(fields[1])
    return None


def _all() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def below(root: int) -> list[int]:
    """The living descendants of a process."""
    parents = {pid: status[1] for pid in _all() if (status := _status(pid)) is not None and status[0] != "Z"}
    found: list[int] = []
    waiting = [root]
    while waiting:
        parent = waiting.pop()
        children = [pid for pid, above in parents.items() if above == parent]
        found += children
        waiting += children
    return found


def command(pid: int) -> str:
    """The command line of a process; empty where it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return ""


def named(root: int, kind: str) -> list[int]:
    """Descendants that are Ray's `raylet`, its `gcs_server`, a `worker` that runs a trial, or the `fork server`, from
    which workers fork."""
    wanted: dict[str, Callable[[int], bool]] = {
        "raylet": lambda pid: command(pid).split(" ")[0].endswith("/raylet"),
        "GCS": lambda pid: command(pid).split(" ")[0].endswith("/gcs_server"),
        "worker": lambda pid: re.match(r"ray::(?!IDLE|\w+Agent)", command(pid)) is not None,
        "fork server": lambda pid: _forks(pid) and not _forks(_parent(pid)),
    }
    return sorted(filter(wanted[kind], below(root)))


def _forks(pid: int) -> bool:
    return "fedtune.machine.fork_server" in command(pid)


def _parent(pid: int) -> int:
    status = _status(pid)
    return 0 if status is None else status[1]


def kill(pid: int) -> None:
    """Ends one process at once."""
    _send(pid, signal.SIGKILL)


def _send(pid: int, what: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, what)


@contextlib.contextmanager
def held(pids: Iterable[int]) -> Iterator[None]:
    """While this lasts, the processes stand still."""
    stopped = list(pids)
    for pid in stopped:
        _send(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in stopped:
            _send(pid, signal.SIGCONT)


def end_marked(mark: str) -> None:
    """Ends what is left of a case: the processes that carry its mark, and no other."""
    wanted = f"{MARK}={mark}".encode()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        left = []
        for pid in _all():
            with contextlib.suppress(OSError):
                if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") and (_status(pid) or "Z")[0] != "Z":
                    left.append(pid)
        if not left:
            return
        for pid in left:
            kill(pid)
        time.sleep(0.05)
