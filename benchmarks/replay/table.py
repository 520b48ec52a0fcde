"""What a search is replayed on. A `Table` gives episodes; an `Episode` has seeds for the search, and seeds held out.

    Recorded   the recorded configurations are all there are: a proposal becomes the nearest of them. The recorded seeds
               are dealt anew in every repetition.

`benchmarks.replay.gridded` has those for the cells of a grid, `benchmarks.replay.surrogate` the one for
continuous spaces. Values are turned so that larger is better. A federation that diverged counts with the worst value of
the whole table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

import numpy as np

from analysis.curve_table import CurveTable
from benchmarks.replay.searcher import Floats
from benchmarks.tables.points import to_unit
from search_spaces.parameter import Value
from search_spaces.space import Space


class Episode(Protocol):
    """One repetition: which seeds the search has, and what is true of a configuration."""

    #: Seeds that the search may use: places 0 … seeds - 1.
    seeds: int
    #: `truth` of the best configuration there is, and the mean over all of them: what a blind choice has.
    best: float
    blind: float
    #: Over how many held-out seeds a configuration's mean is taken; None: it is known exactly.
    fresh: int | None
    #: Regret of the configuration whose mean over all the search's seeds is highest, as if every configuration had run
    #: on all of them: no choice by what is seen can be expected to do better. None where a space has no end of them.
    floor: float | None

    def curve(self, values: Mapping[str, Value], seed: int) -> Floats:
        """The validation metric of one federation, round by round; NaN from where it diverged."""

    def seconds(self, values: Mapping[str, Value], seed: int) -> float:
        """Seconds of a round of that federation."""

    def truth_curve(self, values: Mapping[str, Value]) -> Floats:
        """The mean test metric over the held-out seeds, round by round."""

    def expected(self, values: Mapping[str, Value]) -> float:
        """The mean validation metric of the last round over the held-out seeds: what a search estimates."""


class Table(Protocol):
    """A space with curves."""

    name: str
    space: Space
    rounds: int

    def episode(self, repetition: int) -> Episode:
        """The repetition of that number; the same whenever it is asked for."""

    def describe(self) -> str:
        """What it was made of, in a sentence or two."""


#: Seeds of a table whose own curves are replayed: two are held out, and a search needs one.
FEWEST_SEEDS = 3


def held_out(seeds: int) -> int:
    """How many of a table's seeds a search never sees: three of eight, and at least two."""
    if seeds < FEWEST_SEEDS:
        raise ValueError(f"a table of {seeds} seeds: two are held out, and a search needs one")
    return max(2, 3 * seeds // 8)


class Recorded:
    """The recorded configurations are all there are."""

    def __init__(self, table: CurveTable, name: str | None = None) -> None:
        self.table, self.space, self.rounds = table, table.space, table.rounds
        self.name = name or str(table.card["name"])
        self.validation, self.test = complete(table)
        self._points = np.array([to_unit(self.space, values) for values in table.configurations])
        self._nearest: dict[tuple[tuple[str, Value], ...], int] = {}

    def place(self, values: Mapping[str, Value]) -> int:
        """The recorded configuration nearest to `values`, in the unit cube."""
        key = tuple(values.items())
        if key not in self._nearest:
            apart = ((self._points - to_unit(self.space, values)) ** 2).sum(axis=1)
            self._nearest[key] = int(apart.argmin())
        return self._nearest[key]

    def episode(self, repetition: int) -> RecordedEpisode:
        rng = np.random.default_rng([repetition, 1])
        order = rng.permutation(len(self.table.seeds))
        return RecordedEpisode(self, order, self.table.validation * self.table.sign)

    @property
    def size(self) -> str:
        """How much is recorded, and how its seeds are dealt, in a sentence."""
        c, s, r = self.table.validation.shape
        return (
            f"{c} configurations × {s} seeds × {r} rounds as recorded; {s - held_out(s)} seeds for the search, "
            f"{held_out(s)} held out."
        )

    def describe(self) -> str:
        return f"{self.size} {differences(self.test[:, :, -1])}"


class RecordedEpisode:
    """`order`: places of the table's seeds, those of the search first. `seen`: (configurations, seeds, rounds)."""

    def __init__(self, world: Recorded, order: np.ndarray, seen: Floats) -> None:
        hidden = held_out(len(order))
        self._world, self._seen = world, seen
        self._search, self._held = order[:-hidden], order[-hidden:]
        self.seeds = len(self._search)
        self._truth = world.test[:, self._held].mean(axis=1)
        self._expected = world.validation[:, self._held, -1].mean(axis=1)
        self.best, self.blind = float(self._truth[:, -1].max()), float(self._truth[:, -1].mean())
        self.fresh: int | None = hidden
        last = np.nan_to_num(seen[:, self._search, -1], nan=-np.inf).mean(axis=1)
        self.floor: float | None = self.best - float(self._truth[last.argmax(), -1])

    def curve(self, values: Mapping[str, Value], seed: int) -> Floats:
        found: Floats = self._seen[self._world.place(values), self._search[seed]]
        return found

    def seconds(self, values: Mapping[str, Value], seed: int) -> float:
        taken = self._world.table.seconds
        found = float(taken[self._world.place(values), self._search[seed]])
        return found if np.isfinite(found) else float(np.nanmedian(taken))

    def truth_curve(self, values: Mapping[str, Value]) -> Floats:
        found: Floats = self._truth[self._world.place(values)]
        return found

    def expected(self, values: Mapping[str, Value]) -> float:
        return float(self._expected[self._world.place(values)])


def differences(last: Floats) -> str:
    """How far configurations differ, and by how much one seed moves them: the two-way analysis of variance of the last
    test values `last` (configurations, seeds), without interaction, in a sentence. In hundredths."""
    from scipy.stats import f

    c, s = last.shape
    means = last.mean(axis=1)
    rest = last - means[:, None] - last.mean(axis=0) + last.mean()
    noise = float((rest**2).sum()) / ((c - 1) * (s - 1))
    between = s * float(means.var(ddof=1))
    if noise <= 0:
        return "All seeds order the configurations alike."
    p = float(f.sf(between / noise, c - 1, (c - 1) * (s - 1)))
    true = math.sqrt(max(0.0, (between - noise) / s))
    return (
        f"The standard deviation of true means between configurations is estimated at {100 * true:.1f} points, that of "
        f"one seed's noise on the same seeds at {100 * math.sqrt(noise):.1f}; that all are equal has "
        f"{'p < 0.001' if p < 0.001 else f'p = {p:.3f}'} (F test)."
    )


def complete(table: CurveTable) -> tuple[Floats, Floats]:
    """Validation and test curves, larger is better, with the worst value of the table where a federation diverged."""
    found = []
    for curves in (table.validation, table.test):
        turned = curves * table.sign
        found.append(np.where(np.isnan(turned), np.nanmin(turned), turned))
    return found[0], found[1]
