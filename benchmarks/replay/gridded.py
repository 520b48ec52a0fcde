"""The cells of a grid, for searchers that propose what lies between them as well.

    Gridded    a proposal has the true mean of the nearest cell. One that is a cell has its recorded curves. One beside
               it has, for cell c and seed s,

                   y(x, s) = m_c + p_s + e,    e drawn anew for every proposal and seed

               m_c and p_s are what the cell and the seed do to the recorded curves, e is what is left of another
               recorded federation, drawn by chance: two configurations that are close to one another have noise of
               their own on the same seed, as in a real search. With the cell's recorded curve for all of them, a search
               whose proposals gather in one cell would see one value again and again, and take the noise for small.
    Shuffled   the same, but what a search sees is dealt out at random among configurations, anew for every seed and
               round. So neither rounds nor values tell anything, and no search can do better than to draw one.

All parts are those of the seeds that the search has; held-out ones show nowhere but in the truth.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from analysis.curve_table import CurveTable
from benchmarks.replay.searcher import Floats
from benchmarks.replay.surrogate import digest
from benchmarks.replay.table import Recorded, RecordedEpisode
from search_spaces.parameter import Value

#: What the name of such a table ends with.
SHUFFLED = "shuffled"


class Gridded(Recorded):
    """A table of all cells of a grid."""

    def episode(self, repetition: int) -> GriddedEpisode:
        rng = np.random.default_rng([repetition, 1])
        order = rng.permutation(len(self.table.seeds))
        return GriddedEpisode(self, order, self.table.validation * self.table.sign, repetition)

    def describe(self) -> str:
        return f"{super().describe()} What lies between cells has the nearest one's mean, and noise of its own."


class Shuffled(Gridded):
    """What a search sees tells nothing."""

    def __init__(self, table: CurveTable) -> None:
        super().__init__(table, f"{table.card['name']}, {SHUFFLED}")

    def episode(self, repetition: int) -> GriddedEpisode:
        rng = np.random.default_rng([repetition, 2])
        order = rng.permutation(len(self.table.seeds))
        return GriddedEpisode(self, order, rng.permuted(self.validation, axis=0), repetition)

    def describe(self) -> str:
        return f"{super().describe()} What a search sees is dealt out among the configurations by chance."


class GriddedEpisode(RecordedEpisode):
    """`order` and `seen`: as of `RecordedEpisode`."""

    def __init__(self, world: Gridded, order: np.ndarray, seen: Floats, repetition: int) -> None:
        super().__init__(world, order, seen)
        self._repetition = repetition
        mine = seen[:, self._search]
        self._range = float(np.nanmin(mine)), float(np.nanmax(mine))
        mine = np.where(np.isnan(mine), self._range[0], mine)  # diverged
        cells, seeds = mine.shape[:2]
        self._of_cell, self._of_seed = mine.mean(axis=1), mine.mean(axis=0) - mine.mean(axis=(0, 1))
        rest = mine - self._of_cell[:, None] - self._of_seed
        # Fitted means leave less than there is: of c·s squares (c - 1)·(s - 1) are free.
        self._rest = rest * np.sqrt(cells * seeds / max((cells - 1) * (seeds - 1), 1))

    def curve(self, values: Mapping[str, Value], seed: int) -> Floats:
        cell = self._world.place(values)
        if dict(values) == self._world.table.configurations[cell]:
            return super().curve(values, seed)
        draws = np.random.default_rng([self._repetition, 5, seed, digest(values)])
        cells, seeds = self._rest.shape[:2]
        noise = self._rest[draws.integers(cells), draws.integers(seeds)]
        return np.clip(self._of_cell[cell] + self._of_seed[seed] + noise, *self._range)
