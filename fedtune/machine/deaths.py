"""What a trial's process died of, as far as that can be known: Ray says that it is gone, and not by which signal.

A process that crashes in native code (SIGSEGV, SIGABRT, SIGFPE) still writes a line to the trial's log, as Python's
`faulthandler` sees to (`trainables.worker.process.tell_crashes`). Where memory ran out it was ended by Ray, whose error
says so, or by the system, which counts whom it ended. A process that `kill` ended leaves nothing of the kind; nor does
one that a bus error or an illegal instruction ended, which come of the disk or of the processor.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path

from search_spaces import files

#: How the lines begin that `faulthandler` writes, of crashes that a program causes itself.
_CRASHES = tuple(
    f"Fatal Python error: {name}".encode() for name in ("Segmentation fault", "Aborted", "Floating point exception")
)
#: What Ray's error says of processes that it ended for lack of memory.
_RAY_SAYS = "running low on memory"
#: Where the system counts the processes that it ended for lack of memory: below a control group, and of all.
_GROUPS, _ALL = Path("/sys/fs/cgroup"), Path("/proc/vmstat")


class Death(Enum):
    """Of what a trial's process died."""

    MEMORY = "for lack of memory"
    CRASH = "by a crash in native code"
    #: Nothing says that the process itself brought it about.
    OUTSIDE = "from outside"


def crashes(log: Path) -> int:
    """How many crashes the log of a trial tells of."""
    try:
        lines = files.read_bytes(log).splitlines()
    except OSError:
        return 0
    return sum(line.startswith(_CRASHES) for line in lines)


def memory_kills() -> int:
    """How many processes the system has ended for lack of memory: of this process's control group, where it is of a
    kind that counts them, or of the whole machine. 0 where the system does not say."""
    counts = (_count(_GROUPS / _group().lstrip("/") / "memory.events"), _count(_ALL))
    return next((count for count in counts if count is not None), 0)


def death(said: str, *, crashed: bool, memory_kill: bool) -> Death:
    """said: Ray's error. crashed: whether the trial's log tells of a further crash. memory_kill: whether the system has
    ended a further process for lack of memory."""
    if _RAY_SAYS in said or memory_kill:
        return Death.MEMORY
    return Death.CRASH if crashed else Death.OUTSIDE


def _group() -> str:
    """The control group of this process, in the hierarchy that all controllers share."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return ""
    return next((line.removeprefix("0::") for line in lines if line.startswith("0::")), "")


def _count(file: Path) -> int | None:
    """What follows `oom_kill` in a file of lines of a name and a number."""
    try:
        pairs = [line.split() for line in file.read_text().splitlines()]
        return next((int(pair[1]) for pair in pairs if pair[:1] == ["oom_kill"]), None)
    except (OSError, ValueError, IndexError):
        return None
