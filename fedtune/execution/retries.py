"""Trials that ran out of memory or whose processes died: whether and how they go on, and who is to blame in the end.

A trial that ran out of memory goes on from its last checkpoint with a larger share of the machine
(`fedtune.execution.shares`). Others go on beside it. The study sees no failure.

A trial whose process died for lack of memory does the same. Of any other death memory is not known to be the reason,
and the trial goes on with the share that it had, `RETRIES` times. When it dies once more with the same share, the
configuration is to blame only where the process died after the same round each time, and each time for lack of memory
or by a crash in native code: what a configuration does, it does again, as the same seed gives the same rounds. One that
died elsewhere, or of which nothing says why, was ended from outside: by a person, or for the memory that something else
took. No trial is scored by that, and the search ends with a sentence.

Ray says that a process is gone, and not by which signal. One that crashes in native code (SIGSEGV, SIGABRT, SIGFPE)
still writes a line to the trial's log, as Python's `faulthandler` sees to (`trainables.worker.process.tell_crashes`).
On a machine that does not see the run directory the log is another file, of which `cluster.release` brings the end.
Where memory ran out it was ended by Ray, whose error says so, or by the system, which counts whom it ended. A process
that `kill` ended leaves nothing of the kind; nor does one that a bus error or an illegal instruction ended, which come
of the disk or of the processor.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fedtune.execution.shares import Shares
from fedtune.machine import cluster
from fedtune.machine.resources import Share
from search_spaces import files, run_folder
from search_spaces.errors import UserError

if TYPE_CHECKING:
    from trainables.worker.job import Ending

#: How often a trial whose process died goes on with the same share.
RETRIES = 2
#: How the lines begin that `faulthandler` writes, of crashes that a program causes itself.
_CRASHES = tuple(
    f"Fatal Python error: {name}".encode() for name in ("Segmentation fault", "Aborted", "Floating point exception")
)
#: What Ray's error says of processes that it ended for lack of memory.
_RAY_SAYS = "running low on memory"
#: Where the system counts the processes that it ended for lack of memory: below a control group, and of all.
_GROUPS, _ALL = Path("/sys/fs/cgroup"), Path("/proc/vmstat")


class Cause(Enum):
    """Of what a trial's process died."""

    MEMORY = "for lack of memory"
    CRASH = "by a crash in native code"
    #: Nothing says that the process itself brought it about.
    OUTSIDE = "from outside"


class EndedFromOutside(UserError):
    """The process of a trial was ended again and again by something outside of the search. Exit code 3."""

    exit_code = 3


class Death(NamedTuple):
    """The death of a trial's process."""

    #: How many rounds were written.
    round: int
    of: Cause


class GoesOn(NamedTuple):
    """How a trial goes on that could not."""

    #: With another share of the machine than it had; None: as before.
    share: Share | None
    #: One sentence for the user.
    told: str


class Retries:
    """The deaths of one session, by the numbers of the trials, and what follows from them."""

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        self._found: dict[int, list[Death]] = defaultdict(list)
        #: Of a trial's process its folder, its number of seeds, and what was counted when it began: crashes that its
        #: log tells of, and processes that the system ended for lack of memory.
        self._begun: dict[int, tuple[Path, int, tuple[int, int]]] = {}

    def begin(self, number: int, folder: Path, seeds: int) -> None:
        """A process begins with a trial, whose folder this is, and whose rounds are of so many `seeds`."""
        self._begun[number] = folder, seeds, self._counts(folder)

    def note(self, number: int, said: str, home: Any = None) -> Death:
        """Its process has died, of which Ray said this. home: what writes for machines that do not see the folder."""
        from trainables.worker.rounds_jsonl import complete_rounds

        folder, seeds, (crashes, kills) = self._begun[number]
        if home is not None:
            with contextlib.suppress(OSError):  # a full disk is told by what is written next
                cluster.release(home, folder)
        crashes_now, kills_now = self._counts(folder)
        of = cause(said, crashed=crashes_now > crashes, memory_kill=kills_now > kills)
        died = Death(complete_rounds(folder / run_folder.ROUNDS, seeds), of)
        self._found[number].append(died)
        return died

    def end(self, number: int) -> None:
        """Lets go of a trial that has ended: of its process, of its deaths and of its share."""
        self._begun.pop(number, None)
        self._found.pop(number, None)
        self._shares.end(number)

    def _counts(self, folder: Path) -> tuple[int, int]:
        return crashes(folder / run_folder.LOG), memory_kills()

    def goes_on(self, number: int, ending: Ending, died: Death | None) -> GoesOn | None:
        """How a trial goes on that ran out of memory, or whose process `died`: with a larger share, if there is one and
        memory was the reason, else as before a few times. None where it goes on no more."""
        had = cluster.kind_of(ending.node) if ending.out_of_memory and ending.node else None
        more = self._shares.more(number, had) if died is None or died.of is Cause.MEMORY else None
        if more is None and (died is None or len(self._found[number]) > RETRIES):
            return None
        if more is not None:
            self._found.pop(number, None)  # what became of it with less counts no more
        why = "memory did not suffice" if died is None else "the process died"
        if died is not None and died.of is not Cause.OUTSIDE:
            why += f" {died.of.value}"
        how = "as before" if more is None else f"with {in_words(more)}"
        said = (
            f"Trial {number} stopped after round {ending.round}, as {why}; it goes on from its last checkpoint {how}."
        )
        return GoesOn(more, said)

    def given_up(self, number: int, ending: Ending, died: Death | None) -> str:
        """Why a trial failed that goes on no more."""
        if died is not None:
            return self.error(number)
        share = self._shares[number]
        had = in_words(share) if share.gpus > 0 else "the whole machine"
        why = str(ending.error).rstrip(".")
        return f"It ran out of memory with {had} to itself after round {ending.round} ({why})."

    def is_own_doing(self, number: int) -> bool:
        """Whether a trial brought its deaths about."""
        found = self._found[number]
        return len({died.round for died in found}) == 1 and all(died.of != Cause.OUTSIDE for died in found)

    def error(self, number: int) -> str:
        """Why a trial failed that did."""
        found = self._found[number]
        ways = " or ".join(dict.fromkeys(died.of.value for died in found))
        return f"Its process died {len(found)} times {ways}, each time after round {found[-1].round}."

    def from_outside(self, number: int, again: str) -> EndedFromOutside:
        """What ends the search where a trial did not. again: the command that goes on."""
        *earlier, last = (died.round for died in self._found[number])
        if set(earlier) == {last}:
            when = f"each time after round {last}, and nothing says that memory ran out or that it crashed"
        else:
            when = f"after the rounds {', '.join(map(str, earlier))} and {last}"
        return EndedFromOutside(
            f"The process of trial {number} died {len(earlier) + 1} times, {when}, so it was ended from outside, or "
            f"for memory that something else took. The search stopped and keeps what was written; no trial was scored "
            f"by this. Then go on with `{again}`."
        )


def in_words(share: Share) -> str:
    """A share in words."""
    return f"{share.gpus:.3g} {share.kind or 'GPU'}" if share.gpus > 0 else f"{share.cpus:g} cores"


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


def cause(said: str, *, crashed: bool, memory_kill: bool) -> Cause:
    """said: Ray's error. crashed: whether the trial's log tells of a further crash. memory_kill: whether the system has
    ended a further process for lack of memory."""
    if _RAY_SAYS in said or memory_kill:
        return Cause.MEMORY
    return Cause.CRASH if crashed else Cause.OUTSIDE


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
