"""The benchmark of searches with several objectives: every searcher on every table that has several, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from analysis import curve_table
from benchmarks.replay.bench import BUDGETS, SLOTS, as_data
from benchmarks.replay.measures import over
from benchmarks.replay.objectives.measures import Judged, ObjectivesSimulation, mean_volume
from benchmarks.replay.objectives.searchers import OURS, SEARCHERS
from benchmarks.replay.objectives.table import Objectives, metrics
from benchmarks.replay.pool import Task, every, replayed
from benchmarks.replay.searcher import Setting


def tables(folder: Path, names: Sequence[str] = ()) -> dict[str, Objectives]:
    """The recorded tables that have several objectives."""
    found = [curve_table.load(path) for path in sorted(folder.glob("*.npz"))]
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
