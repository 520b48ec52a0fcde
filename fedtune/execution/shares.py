"""Which share of the machine each trial has, and how many have room at once.

Every trial has the experiment's usual share, cores and a part of a GPU or several. One that ran out of memory goes on
with twice its share, of a GPU or else of the cores, as long as there is more than it had; of a whole GPU, on one of a
kind with more memory, where there is such (`fedtune.execution.retries` says when).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from fedtune.machine import cluster, resources
from fedtune.machine.resources import Machine, Share
from fedtune.record.experiment import Placement

#: While a trial waits for a larger share, so many others begin for each one that runs at once; then they wait too.
PASSING = 2
#: After so many seconds it is counted again how many trials the machines have room for.
COUNTED_EVERY = 5.0


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
        #: When it was last counted how many trials fit on which machine, and how many did.
        self._counted, self.slots = -math.inf, list[cluster.Slots]()
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
        self.slots = cluster.slot_map(self._usual.cpus, self._usual.gpus)
        if self.slots == before:
            return None
        self.machines = [Machine(one.cores, one.gpus, one.gpu) for one in self.slots]
        return self.slots

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
