"""Trials that ran out of memory or whose processes died: with which share of the machine they go on, how often, and who
is to blame in the end.

A trial that ran out of memory goes on from its last checkpoint with twice its share, of a GPU or else of the cores, as
long as there is more than it had; of a whole GPU, on one of a kind with more memory, where there is such. Others go on
beside it. The study sees no failure.

A trial whose process died for lack of memory does the same. Of any other death memory is not known to be the reason,
and the trial goes on with the share that it had, `RETRIES` times. When it dies once more with the same share, the
configuration is to blame only where the process died after the same round each time, and each time for lack of memory
or by a crash in native code: what a configuration does, it does again, as the same seed gives the same rounds. One that
died elsewhere, or of which nothing says why, was ended from outside: by a person, or for the memory that something else
took. No trial is scored by that, and the search ends with a sentence.

Ray says that a process is gone, and not by which signal. One that crashes in native code (SIGSEGV, SIGABRT, SIGFPE)
still writes a line to the trial's log, as Python's `faulthandler` sees to (`trainables.worker.process.tell_crashes`).
Where memory ran out it was ended by Ray, whose error says so, or by the system, which counts whom it ended. A process
that `kill` ended leaves nothing of the kind; nor does one that a bus error or an illegal instruction ended, which come
of the disk or of the processor.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from fedtune.machine import resources
from fedtune.machine.resources import Machine, Share
from fedtune.record.experiment import Placement
from search_spaces import files, run_folder
from search_spaces.errors import UserError

#: How often a trial whose process died goes on with the same share.
RETRIES = 2
#: While a trial waits for a larger share, so many others begin for each one that runs at once; then they wait too.
PASSING = 2
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


class Shares:
    """Cores and GPUs of the trials of one session, by their numbers.

    Ray places trials where the least is left over that suffices. So while a trial waits for a larger share, as much as
    it needs is kept free, and what others leave comes together on one GPU or machine within about the time of a trial,
    as others begin in the smaller gaps."""

    def __init__(
        self, placement: Placement, machines: Sequence[Machine] = (), cards: Callable[[], Mapping[str, int]] = dict
    ) -> None:
        """cards: measures how much memory the kinds of GPUs have; called where a trial needs another one."""
        self._usual, self._cards = Share(placement.cpus, placement.gpus), cards
        #: Those that are there now.
        self.machines = machines
        self._alone = placement.concurrency == 1
        self._passing = PASSING * placement.concurrency
        self._of: dict[int, Share] = {}
        #: Trials with another share than usual that have yet to start, and how many others began while one waited.
        self._awaited: set[int] = set()
        self._passed = 0

    def __getitem__(self, number: int) -> Share:
        return self._of[number]

    def begin(self, number: int, larger: Share | None) -> Share:
        """The share of a trial that is to start. larger: the one that it was put back with; None: the usual one."""
        self._of[number] = share = self._within(larger)
        self._passed += bool(self._awaited)
        if share != self._usual:
            self._awaited.add(number)
        return share

    def started(self, number: int) -> None:
        """A trial has begun, or has ended before it did."""
        self._awaited.discard(number)
        if not self._awaited:
            self._passed = 0

    def _within(self, larger: Share | None) -> Share:
        """The share, of which there may be less on these machines."""
        if larger is None:
            return self._usual
        gpus = max(machine.gpus for machine in self.machines)
        kind = larger.kind if any(machine.kind == larger.kind for machine in self.machines) else ""
        return Share(min(larger.cpus, self._most_cores()), min(larger.gpus, max(1.0, gpus)), kind)

    def _most_cores(self) -> float:
        return max(machine.cores for machine in self.machines)

    def room(self, larger: Share | None, live: Iterable[int]) -> bool:
        """Whether the next trial may start beside those that are `live`, where some have larger shares than usual."""
        used = [self._of[number] for number in live]
        if larger is None and all(share == self._usual for share in used):
            return True
        if self._passed >= self._passing:
            return False
        return not used or resources.fit([*used, self._within(larger)], self.machines)

    def more(self, number: int, had: str | None) -> Share | None:
        """The share with which a trial goes on that ran out of memory; None where it had all there is: without a GPU a
        trial that ran alone had the whole machine already. had: the kind of its GPU; None where that is not known."""
        share = self._of[number]
        found = None if self._alone and share.gpus == 0 else resources.larger(share, self._most_cores())
        if found is None and had is not None and share.gpus >= 1 and len({m.kind for m in self.machines if m.gpus}) > 1:
            return resources.larger_card(share, had, self._cards())
        return found


class ProcessDeaths:
    """The deaths of one session, by the numbers of the trials."""

    def __init__(self) -> None:
        self._found: dict[int, list[Death]] = defaultdict(list)
        #: What was counted when a trial's process began: crashes that its log tells of, and processes that the system
        #: ended for lack of memory.
        self._before: dict[int, tuple[int, int]] = {}

    def begin(self, number: int, folder: Path) -> None:
        """A process begins with a trial, whose folder this is."""
        self._before[number] = self._counts(folder)

    def note(self, number: int, folder: Path, seeds: int, said: str) -> Death:
        """Its process has died, of which Ray said this; its rounds are of so many `seeds`."""
        from trainables.worker.rounds_jsonl import complete_rounds

        crashes, kills = self._before[number]
        crashes_now, kills_now = self._counts(folder)
        of = cause(said, crashed=crashes_now > crashes, memory_kill=kills_now > kills)
        died = Death(complete_rounds(folder / run_folder.ROUNDS, seeds), of)
        self._found[number].append(died)
        return died

    def _counts(self, folder: Path) -> tuple[int, int]:
        return crashes(folder / run_folder.LOG), memory_kills()

    def forget(self, number: int) -> None:
        """A trial goes on with a larger share: what became of it with less counts no more."""
        self._found.pop(number, None)

    def too_often(self, number: int) -> bool:
        """Whether a trial goes on no more with its share."""
        return len(self._found[number]) > RETRIES

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
