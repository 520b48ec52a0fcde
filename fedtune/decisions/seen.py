"""What a decision looks at: trials of an experiment that have ended; and what is kept of them from one to the next.

A search of ten thousand trials makes twenty thousand decisions, and nearly all that a decision sees the one before it
saw as well. So what is read of every trial is a tally, a class with a method `add` that counts one trial, and each is
counted once. What a tally says depends on which trials were counted and not on their order, so it is the same whether
it was kept or is counted anew. It is counted anew where a decision does not see all that the one before it saw: those
of a trial that goes on are made from what it saw when it was proposed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


class Tally(Protocol):
    """What is read of trials."""

    def add(self, trial: FrozenTrial) -> None:
        """Counts one more."""


Counted = TypeVar("Counted", bound=Tally)


@dataclass(frozen=True)
class Seen(Collection[int]):
    """The trials that a decision looks at, by their places in the order in which trials were begun: those before `end`,
    but for some. at: the trial of a place."""

    at: Callable[[int], FrozenTrial]
    end: int
    without: frozenset[int] = frozenset()

    def __contains__(self, place: object) -> bool:
        return isinstance(place, int) and place < self.end and place not in self.without

    def __iter__(self) -> Iterator[int]:
        return (place for place in range(self.end) if place not in self.without)

    def __len__(self) -> int:
        return self.end - len(self.without)

    def trials(self) -> list[FrozenTrial]:
        """All of them, in order."""
        return [*map(self.at, self)]

    def rest(self, begun: int) -> list[FrozenTrial]:
        """Of so many trials that were begun those that it does not see, in order."""
        return [*map(self.at, (*sorted(self.without), *range(self.end, begun)))]

    def beyond(self, other: Seen) -> list[int] | None:
        """What it sees and the `other` one does not; None where that sees what it does not."""
        if self.end < other.end or any(place in other for place in self.without):
            return None
        more = *sorted(other.without), *range(other.end, self.end)
        return [place for place in more if place not in self.without]


class Kept:
    """What is kept of the trials of an experiment."""

    def __init__(self) -> None:
        self._tallies: dict[tuple[int, Callable[..., Any]], tuple[Any, Seen]] = {}
        self._running: dict[int | None, tuple[list[int], int]] = {}

    def tally(self, part: int, seen: Seen, kind: Callable[..., Counted], *given: Any) -> Counted:
        """The tally of that kind of the trials of a run that a decision sees. given: what it is made with, always the
        same."""
        kept = self._tallies.pop((part, kind), None)  # counted in part where counting fails
        more = None if kept is None else seen.beyond(kept[1])
        found: Counted = kind(*given) if kept is None or more is None else kept[0]
        for place in seen if more is None else more:
            found.add(seen.at(place))
        self._tallies[part, kind] = found, seen
        return found

    def running(self, line: int | None, at: Callable[[int], FrozenTrial], begun: int) -> list[int]:
        """The places of those that have not ended, of so many that were begun. One that has ended never runs again, so
        it is asked for that once. line: the run whose trials these are; None where they are those of all."""
        before, known = self._running.get(line, ([], 0))
        found = [place for place in (*before, *range(known, begun)) if not at(place).state.is_finished()]
        self._running[line] = found, begun
        return [*found]
