"""Which share of the machine each trial has, and how many have room at once.

Every trial has the experiment's usual share, cores and a part of a GPU or several. Where that part differs by the kind
of GPU, it is decided before a trial is asked for on which kind it will be, and Ray is asked for that kind. A trial that
ran out of memory goes on with twice its share, of a GPU or else of the cores, as long as there is more than it had; of
a whole GPU, on one of a kind with more memory, where there is such (`fedtune.execution.retries` says when).
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from fedtune.machine import cluster, resources
from fedtune.machine.resources import Machine, Share
from fedtune.record.experiment import Placement
from search_spaces.errors import UserError

#: While a trial waits for a larger share, so many others begin for each one that runs at once; then they wait too.
PASSING = 2
#: After so many seconds it is counted again how many trials the machines have room for.
COUNTED_EVERY = 5.0
#: For so many seconds a search waits for a machine with room for a trial: a cluster may start one, which takes minutes.
PATIENCE = 600.0


class NoRoom(UserError):
    """No machine of the cluster has had room for a trial for `PATIENCE` seconds. Exit code 3."""

    exit_code = 3


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
        self._by_kind = placement.by_kind
        #: Those that are there now.
        self.machines = machines
        self._alone = placement.concurrency == 1
        self._passing = PASSING * placement.concurrency
        self._of: dict[int, Share] = {}
        #: When it was last counted how many trials fit on which machine, and how many did.
        self._counted, self.slots = -math.inf, list[cluster.Slots]()
        #: When one was there at that time, or, before any was, when it was counted first.
        self._roomy = math.inf
        #: The count for which it was seen last that every trial waits for a machine that is there.
        self._checked: Sequence[cluster.Slots] = ()
        #: Trials with another share than usual that have yet to start, and how many others began while one waited.
        self._awaited: set[int] = set()
        self._passed = 0

    def count(self) -> Sequence[cluster.Slots] | None:
        """For how many trials of the usual share each machine has room now; None where that is as it was: machines join
        a cluster, and leave it."""
        now = time.monotonic()
        if now < self._counted + COUNTED_EVERY:
            return None
        before, self._counted = self.slots, now
        self.slots = cluster.slot_map(self._usual.cpus, self._usual.gpus, self._by_kind)
        if self._roomy == math.inf or any(one.slots for one in self.slots):
            self._roomy = now
        if self.slots == before:
            return None
        self.machines = [Machine(one.cores, one.gpus, one.gpu) for one in self.slots]
        return self.slots

    @property
    def without_room(self) -> float:
        """For how many seconds no machine had room for a trial of the usual share when it was counted last."""
        return max(0.0, self._counted - self._roomy)

    def __getitem__(self, number: int) -> Share:
        return self._of[number]

    def begin(self, number: int, larger: Share | None, live: Iterable[int] = ()) -> Share:
        """The share of a trial that is to start beside those that are `live`. larger: the one that it was put back
        with; None: the usual one."""
        if larger is None:
            share = self._beside([self._of[other] for other in live]) or self._usual
        else:
            share = self._within(larger)
        self._of[number] = share
        self._passed += bool(self._awaited)
        if not self._is_usual(share):
            self._awaited.add(number)
        return share

    def _on(self, kind: str) -> Share:
        """The usual share on a GPU of this kind, where it differs by the kind."""
        return Share(self._usual.cpus, self._by_kind.get(kind, self._usual.gpus), kind)

    def _is_usual(self, share: Share) -> bool:
        return share == (self._on(share.kind) if self._by_kind else self._usual)

    def _beside(self, used: Sequence[Share]) -> Share | None:
        """The usual share that has room beside those that are used: of several kinds of GPU, on the one of which the
        smallest part is in use. None where no kind has room; where the share does not differ by kind, that is not
        asked."""
        if not self._by_kind:
            return self._usual
        taken, room = Counter(share.kind for share in used), Counter[str]()
        for machine in self.machines:
            share = self._on(machine.kind)
            room[machine.kind] += resources.room_on(machine.cores, machine.gpus, share.cpus, share.gpus)
        as_usual = all(map(self._is_usual, used))
        for kind in sorted(+room, key=lambda kind: (taken[kind] / room[kind], kind)):
            share = self._on(kind)
            if taken[kind] < room[kind] if as_usual else resources.fit([*used, share], self.machines):
                return share
        return None

    def processes(self, trials: int, bundle: int) -> int:
        """How many processes so many `trials` of the usual share are in at once, with `bundle` in each at most: each is
        on one machine, and on one GPU."""
        left = min(trials, max(1, sum(one.slots for one in self.slots)))
        if bundle == 1:
            return left
        of_gpu, found = int(1 / self._usual.gpus + 1e-9) if self._usual.gpus else left, 0
        for one in self.slots:
            room = min(left, one.slots)
            left -= room
            found += sum(-(-min(of_gpu, room - taken) // bundle) for taken in range(0, room, of_gpu))
        return max(1, found)

    def together(self, most: int, processes: Iterable[Share]) -> int:
        """How many trials of the usual share the next process is to have, `most` at most: as many as find room beside
        these `processes`, or else on a machine that is empty."""
        if most == 1:
            return 1
        return self._fitting(most, tuple(processes)) or self._fitting(most, ()) or 1

    def _fitting(self, most: int, beside: Sequence[Share]) -> int:
        def is_too_large(trials: int) -> bool:
            return not resources.fit([*beside, resources.of_process([self._usual] * trials)], self.machines)

        return bisect_left(range(1, most + 1), True, key=is_too_large)

    def lost(self, waiting: Mapping[str, Sequence[int]], held: Mapping[str, Share], again: str) -> list[str]:
        """Of trials that wait for a machine, by the names of their processes, those whose machines are gone. held: what
        each process is to have; again: the command that goes on with the search. Raises `NoRoom`."""
        if self.without_room > PATIENCE:
            raise NoRoom(
                f"No machine of the cluster has had room for a trial for {PATIENCE / 60:g} minutes. The search stopped "
                f"and keeps what was written; no trial was scored by this. Then go on with `{again}`."
            )
        if self.slots is self._checked:
            return []
        self._checked = self.slots
        return [
            name for name, numbers in waiting.items() if self.misplaced(numbers) or self._too_many(numbers, held[name])
        ]

    def _too_many(self, numbers: Sequence[int], whole: Share) -> bool:
        """Whether there is a machine for each of these trials and none for all of them in one process."""
        return not self._exists(whole) and all(self._exists(self._of[number]) for number in numbers)

    def misplaced(self, waiting: Iterable[int]) -> list[int]:
        """Of trials that have yet to start, those whose share no machine has any more, even when it is empty, and that
        can have another one. Ray would let them wait for ever: it says some ten seconds after the death of a machine
        that it is gone, and until then trials are asked for there."""
        return [number for number in waiting if not self._exists(self._of[number]) and self._elsewhere(number)]

    def _elsewhere(self, number: int) -> bool:
        share = self._of[number]
        other = self._beside([]) if self._is_usual(share) else self._within(share)
        return other is not None and self._exists(other)

    def _exists(self, share: Share) -> bool:
        return resources.fit([share], self.machines)

    def started(self, number: int) -> None:
        """A trial has begun, or has ended before it did."""
        self._awaited.discard(number)
        if not self._awaited:
            self._passed = 0

    def end(self, number: int) -> None:
        """A trial has ended, and its share is asked for no more."""
        self._of.pop(number, None)

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
        if larger is None and all(map(self._is_usual, used)):
            return not used or self._beside(used) is not None
        if self._passed >= self._passing:
            return False
        share = self._beside(used) if larger is None else self._within(larger)
        return not used or share is not None and resources.fit([*used, share], self.machines)

    def more(self, number: int, had: str | None) -> Share | None:
        """The share with which a trial goes on that ran out of memory; None where it had all there is: without a GPU a
        trial that ran alone had the whole machine already. had: the kind of its GPU; None where that is not known."""
        share = self._of[number]
        found = None if self._alone and share.gpus == 0 else resources.larger(share, self._most_cores())
        if found is None and had is not None and share.gpus >= 1 and len({m.kind for m in self.machines if m.gpus}) > 1:
            return resources.larger_card(share, had, self._cards())
        return found
