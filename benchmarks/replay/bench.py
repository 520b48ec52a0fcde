"""The benchmark: every searcher on every table, many repetitions, and what came of it as plain data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from analysis import curve_table
from analysis.curve_table import CurveTable
from benchmarks.replay.gridded import SHUFFLED, Gridded, Shuffled
from benchmarks.replay.measures import HELD, Interval, Judged, holding, judge, over, rms, share
from benchmarks.replay.pool import Task, every, replayed
from benchmarks.replay.searcher import Setting
from benchmarks.replay.searchers import SEARCHERS
from benchmarks.replay.simulator import Simulation
from benchmarks.replay.surrogate import WORLDS, Surrogate, named
from benchmarks.replay.table import FEWEST_SEEDS, Episode, Table

#: Budgets, in whole federations of one seed: each about one and a half times the one before.
BUDGETS = (3, 5, 8, 12, 18, 27, 40)
#: Slots on which the regret is measured. With one slot every round is counted for a trial that has it: with several,
#: what runs beside is spent and cannot win yet, or is not counted yet, and which of the two depends on how a searcher
#: asks for rounds.
SLOTS = 1


def tables(where: Path, names: Sequence[str] = ()) -> dict[str, Table]:
    """What there is to replay on, of a table or a folder of them: the cells of a table that is a whole grid, and the
    same shuffled; of any other its worlds. Raises `UserError` where a table does not tell what a replay needs."""
    found: dict[str, Table] = {}
    for path in [where] if where.is_file() else sorted(where.glob("*.npz")):
        recorded = curve_table.load(path)
        name = str(recorded.card["name"])
        if is_grid(recorded) and recorded.whole.all() and len(recorded.seeds) >= FEWEST_SEEDS:
            made: dict[str, Callable[[], Table]] = {
                name: partial(Gridded, recorded),
                f"{name}, {SHUFFLED}": partial(Shuffled, recorded),
            }
        else:
            made = {named(name, world): partial(Surrogate, recorded, world) for world in WORLDS}
        found |= {one: make() for one, make in made.items() if not names or one in names}
    return found


def is_grid(table: CurveTable) -> bool:
    """Whether the table's configurations are all the cells of its space's grid."""
    dimensions = [dimension for _, dimension in table.space.dimensions()]
    if any(d.grid is None and d.parameter.kind in ("real", "integer") for d in dimensions):
        return False
    cells = {tuple(sorted(cell.items())) for cell in table.space.grid_points()}
    return cells == {tuple(sorted(values.items())) for values in table.configurations}


def replay(table: Table, task: Task) -> list[Judged]:
    """One repetition, judged at every budget. Raises `Impossible`."""
    episode = table.episode(task.repetition)
    setting = Setting(
        table.space, table.rounds, episode.seeds, task.repetition, task.slots, episode.truth_curve, episode.fresh
    )
    searcher = SEARCHERS[task.searcher](setting)
    budgets = [table.rounds * b for b in task.budgets]
    return [judge(episode, s) for s in Simulation(episode, searcher, slots=task.slots, budgets=budgets).run()]


def measure(given: dict[str, Table], searchers: Sequence[str], *, repetitions: int, processes: int) -> dict[str, Any]:
    """All tasks, and what they found."""
    result = replayed(given, every(given, searchers, repetitions, SLOTS, BUDGETS), processes, replay)
    found, impossible = result.found, result.impossible
    return {
        "repetitions": repetitions,
        "slots": SLOTS,
        "budgets": list(BUDGETS),
        "seconds": round(result.seconds),
        "tables": {
            name: {
                "text": table.describe(),
                "rounds": table.rounds,
                "blind": _median(episode.best - episode.blind for episode in episodes(table, repetitions)),
                "floor": _median(episode.floor for episode in episodes(table, repetitions)),
                "searchers": {
                    searcher: {"impossible": impossible[name, searcher]}
                    if (name, searcher) in impossible
                    else summary(found[name, searcher, SLOTS])
                    for searcher in searchers
                },
            }
            for name, table in given.items()
        },
    }


def episodes(table: Table, repetitions: int) -> Iterator[Episode]:
    """A table's first repetitions."""
    return (table.episode(repetition) for repetition in range(repetitions))


def _median(values: Iterable[float | None]) -> float | None:
    """None where there is none."""
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


def summary(found: Sequence[Sequence[Judged]]) -> dict[str, Any]:
    """What a searcher's repetitions on a table say, each judged at every budget."""
    budgets = [
        {
            "budget": column[0].budget,
            "regret": as_data(over([j.regret for j in column], np.median)),
            "searching": as_data(over([j.searching for j in column], np.median)),
            "curse": as_data(over([j.curse for j in column], np.mean)),
            "covered": as_data(share([j.covered for j in column])),
            "error": as_data(over([j.curse for j in column], rms)),
            "width": as_data(over([j.width for j in column], np.median)),
            "holding": holding([j.curse for j in column], HELD),
            "claim": as_data(share([j.claim for j in column])),
        }
        for column in zip(*found, strict=True)
    ]
    return {"n": len(found), "budgets": budgets}


def as_data(interval: Interval) -> dict[str, Any]:
    """An interval as JSON has it: None for what could not be measured."""
    return {
        key: None if isinstance(v, float) and not math.isfinite(v) else v if isinstance(v, int) else round(v, 6)
        for key, v in asdict(interval).items()
    }
