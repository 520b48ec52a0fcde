"""The benchmark of searches with several objectives: every searcher on every table that has several, as plain data.

    volume    what the named configurations are worth on held-out seeds (`table.ObjectivesEpisode.volume`), from 0 to 1
    tried     the same of all configurations that the search had tried by then; the difference lies in the choice
    named     how many configurations it names

A search that cannot name a front yet has the volume of one configuration that is chosen by chance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from analysis import curve_table
from benchmarks.replay.bench import BUDGETS, SLOTS, as_data
from benchmarks.replay.measures import over
from benchmarks.replay.objectives.searchers import OURS, SEARCHERS
from benchmarks.replay.objectives.table import Objectives, ObjectivesEpisode, metrics
from benchmarks.replay.pool import Task, every, replayed
from benchmarks.replay.searcher import Front, Setting
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


def tables(where: Path, names: Sequence[str] = ()) -> dict[str, Objectives]:
    """Of a table or a folder of them, those that have several objectives."""
    found = [curve_table.load(path) for path in ([where] if where.is_file() else sorted(where.glob("*.npz")))]
    several = [table for table in found if len(metrics(table)) > 1]
    return {t.name: t for t in map(Objectives, several) if not names or t.name in names}


def replay(table: Objectives, task: Task) -> list[Judged]:
    """One repetition, judged at every budget. Raises `Impossible`."""
    episode = table.episode(task.repetition)
    setting = Setting(
        table.space,
        table.rounds,
        episode.seeds,
        task.repetition,
        task.slots,
        episode.truth_curve,
        metrics=table.metrics,
    )
    searcher = SEARCHERS[task.searcher](setting)
    budgets = [table.rounds * b for b in task.budgets]
    return ObjectivesSimulation(episode, searcher, slots=task.slots, budgets=budgets).judged()


def measure(
    given: Mapping[str, Objectives], searchers: Sequence[str], *, repetitions: int, processes: int
) -> dict[str, Any]:
    """All repetitions of these searchers on these tables, and what they found."""
    tasks = every(given, searchers, repetitions, SLOTS, BUDGETS)
    result = replayed(given, tasks, processes, replay)
    return {
        "seconds": round(result.seconds),
        "tables": {
            name: {
                "text": table.describe(),
                "rounds": table.rounds,
                "blind": float(np.median([table.episode(r).blind for r in range(repetitions)])),
                "searchers": {
                    searcher: {"impossible": result.impossible[name, searcher]}
                    if (name, searcher) in result.impossible
                    else summary(result.found[name, searcher, SLOTS], result.found.get((name, OURS, SLOTS), []))
                    for searcher in searchers
                },
            }
            for name, table in given.items()
        },
    }


def summary(found: Sequence[Sequence[Judged]], ours: Sequence[Sequence[Judged]]) -> dict[str, Any]:
    """What a searcher's repetitions on a table say. `lead`: by how much the mean over budgets of `ours` is above this
    one's in the mean, repetition by repetition, as both had the same seeds."""
    own, mine = [mean_volume(one) for one in found], [mean_volume(one) for one in ours]
    last = [repetition[-1] for repetition in found]
    return {
        "n": len(found),
        "budgets": [
            {"budget": column[0].budget, "volume": as_data(over([j.volume for j in column], np.median))}
            for column in zip(*found, strict=True)
        ],
        "mean": as_data(over(own, np.median)),
        "lead": as_data(over([a - b for a, b in zip(mine, own, strict=True)] if mine else [], np.mean)),
        "tried": as_data(over([j.tried for j in last], np.median)),
        "named": float(np.mean([j.named for j in last])),
    }
