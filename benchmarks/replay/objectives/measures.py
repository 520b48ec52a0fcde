"""How good the front is that a search with several objectives names.

    volume    what the named configurations are worth on held-out seeds (`table.ObjectivesEpisode.volume`), from 0 to 1
    tried     the same of all configurations that the search had tried by then; the difference lies in the choice
    named     how many configurations it names

A search that cannot name a front yet has the volume of one configuration that is chosen by chance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.replay.objectives.table import ObjectivesEpisode
from benchmarks.replay.searcher import Front
from benchmarks.replay.simulator import Simulation
from search_spaces.parameter import Value


@dataclass(frozen=True)
class Judged:
    """One snapshot of one repetition."""

    budget: int
    volume: float
    tried: float
    named: int
    seconds: float


class ObjectivesSimulation(Simulation):
    """A search with several objectives. There is no best configuration: what was tried is kept as a set."""

    def __init__(self, episode: ObjectivesEpisode, searcher: Any, *, slots: int, budgets: Sequence[int]) -> None:
        super().__init__(episode, searcher, slots=slots, budgets=budgets)
        self._so_far: list[Mapping[str, Value]] = []
        #: By snapshot, the configurations of which something had been told.
        self.tried: list[tuple[Mapping[str, Value], ...]] = []

    def _tried(self, values: Mapping[str, Value]) -> None:
        if values not in self._so_far:
            self._so_far.append(values)

    def _snapshot(self) -> None:
        super()._snapshot()
        self.tried.append(tuple(self._so_far))

    def judged(self) -> list[Judged]:
        """Runs the search; what it is worth at every budget."""
        return [self._judge(place) for place in range(len(self.run()))]

    def _judge(self, place: int) -> Judged:
        snapshot, blind = self.snapshots[place], self.episode.blind
        front = snapshot.verdict.configurations if isinstance(snapshot.verdict, Front) else ()
        tried = self.tried[place]
        return Judged(
            snapshot.budget,
            self.episode.volume(front) if front else blind,
            self.episode.volume(tried) if tried else blind,
            len(front),
            snapshot.seconds,
        )


def mean_volume(judged: Sequence[Judged]) -> float:
    """The area under a repetition's curve: the mean of its volumes over the budgets."""
    return float(np.mean([one.volume for one in judged]))
