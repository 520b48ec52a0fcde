"""`python -m benchmarks.replay.rungs TABLE …`: would rungs that decide by what has arrived pay on many slots?

Regret is compared by the replay's clock, as a part of a blind choice's: the mean over ten moments, the last of which is
when the first of all searches ends. Repetitions have the same draws, so differences are taken within them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.measure import say
from benchmarks.replay.bench import tables
from benchmarks.replay.measures import judge
from benchmarks.replay.searcher import Floats, Setting
from benchmarks.replay.searchers.arriving import Arriving
from benchmarks.replay.searchers.present import Present
from benchmarks.replay.simulator import Simulation
from benchmarks.replay.table import Table
from benchmarks.tables.lines import RECORDED

#: The first is what the others are compared with.
WAYS: dict[str, Callable[[Setting], Present]] = {
    "by what had ended when a trial began": partial(Present, each=1),
    "by what has arrived": partial(Arriving, later=False),
    "by what has arrived, and stopped trials go on later": partial(Arriving, later=True),
}
#: Federations that a search may spend, and moments at which it is judged.
BUDGET, MOMENTS = 40, 10


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replay.rungs")
    parser.add_argument("tables", nargs="+")
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--repetitions", type=int, default=16)
    parser.add_argument("--folder", type=Path, default=RECORDED, help="where the tables are")
    chosen = parser.parse_args()
    for name, table in tables(chosen.folder, chosen.tables).items():
        found = {way: [] for way in WAYS}  # type: dict[str, list[list[tuple[float, float]]]]
        for repetition in range(chosen.repetitions):
            for way in WAYS:
                found[way].append(searched(table, way, repetition, chosen.slots))
            say(f"  {name}: {repetition + 1} of {chosen.repetitions}")
        scores = {way: by_clock(curves, _first_end(found)) for way, curves in found.items()}
        print(f"{name}, {chosen.slots} slots, {chosen.repetitions} repetitions")
        basis = next(iter(scores.values()))
        for way, score in scores.items():
            apart = score - basis
            error = float(np.std(apart, ddof=1) / np.sqrt(len(apart))) if len(apart) > 1 else float("nan")
            print(f"  {way:<52} {100 * score.mean():5.1f} %   {100 * apart.mean():+.1f} ± {100 * error:.1f}")


def searched(table: Table, way: str, repetition: int, slots: int) -> list[tuple[float, float]]:
    """Moments of a search by the clock, with its regret then as a part of a blind choice's."""
    episode = table.episode(repetition)
    setting = Setting(table.space, table.rounds, episode.seeds, repetition, slots, episode.truth_curve, episode.fresh)
    budgets = [table.rounds * budget for budget in range(2, BUDGET + 1, 2)]
    snapshots = Simulation(episode, WAYS[way](setting), slots=slots, budgets=budgets).run()
    blind = episode.best - episode.blind
    return [(judged.seconds, judged.regret / blind) for judged in (judge(episode, one) for one in snapshots)]


def by_clock(curves: list[list[tuple[float, float]]], until: float) -> Floats:
    """Of every search its mean regret over moments that are evenly apart, that of a blind choice before its first."""
    moments = [until * (place + 1) / MOMENTS for place in range(MOMENTS)]
    return np.array([np.mean([at(curve, moment) for moment in moments]) for curve in curves])


def at(curve: list[tuple[float, float]], moment: float) -> float:
    """The regret at a moment."""
    return next((regret for seconds, regret in reversed(curve) if seconds <= moment), 1.0)


def _first_end(found: dict[str, list[list[tuple[float, float]]]]) -> float:
    return min(curve[-1][0] for curves in found.values() for curve in curves)


if __name__ == "__main__":
    main()
