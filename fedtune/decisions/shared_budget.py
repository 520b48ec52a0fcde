"""A budget that several methods share, and the clock by which it may be counted."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from search_spaces import run_folder

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

#: What comes after the search may take at most this part of a budget by the clock, however dear the best ones are; and
#: by so much of the budget a trial may go on after the planned end of the search, and the first fresh seeds may make
#: everything late.
MOST_KEPT, OVERRUN = 0.5, 0.05


@dataclass(frozen=True)
class ByClock:
    """A budget in seconds that pass while the command runs, sessions of it added up."""

    #: When the search begins and when everything is to have ended.
    begun: float
    whole: float
    #: What is kept for fresh seeds and the final run at least, the fresh seeds of a method that come first (counted in
    #: trials of the search, which may have several), and how many trials run at the same time.
    kept: float
    seeds: float
    slots: int

    def end_of_search(self, prices: Sequence[float], cold: float) -> float:
        """When the search is to end where a trial of every method's best configuration takes so many seconds, and the
        processes of fresh seeds and those of the final run so many to start."""
        later = self.seeds * sum(prices) / self.slots + max(prices, default=0.0)
        return self.whole - min(max(self.kept, later) + 2 * cold, max(self.kept, MOST_KEPT * self.whole))

    @property
    def last_moment(self) -> float:
        """When a trial of the search is stopped that took longer than its price said."""
        return self.whole - self.kept + OVERRUN * self.whole


@dataclass(frozen=True)
class Allocation:
    """What decides, besides the trials, which of several methods that share a budget the next trial goes to."""

    #: By method, in the order in which they are listed: the cost of a round over all seeds of a trial.
    costs: tuple[float, ...]
    #: The same in the unit of the budget, which may be another one than that of the rungs.
    prices: tuple[float, ...]
    budget: float
    rounds: int
    #: Trials that every method gets.
    least: int
    equal: bool
    sign: float
    #: Where the budget is in seconds that pass.
    clock: ByClock | None = None

    def whole(self, place: int) -> float:
        """What a whole trial of the method at `place` takes of the budget."""
        return self.prices[place] * self.rounds


def elapsed(trials: Iterable[FrozenTrial], begun: float) -> float:
    """What the clock showed when the last thing was recorded, and at least `begun`."""
    return max((float(trial.user_attrs.get(run_folder.ENDED, begun)) for trial in trials), default=begun)


class Clock:
    """The seconds that an experiment has been driven, over all its sessions: a session goes on from the last reading
    that was recorded with a trial."""

    def __init__(self, begun: float, trials: Iterable[FrozenTrial]) -> None:
        """begun: what it showed before the first trial; trials: all that there are."""
        self._before, self._started = elapsed(trials, begun), time.monotonic()

    def reading(self) -> float:
        return round(self._before + time.monotonic() - self._started, 3)
