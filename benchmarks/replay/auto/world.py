"""The recorded tables of all methods on one data set, as one thing to be searched.

Seeds are dealt anew in every repetition, the same way for all methods: place 0 is what searches see, the places after
it are fresh seeds, and what is held out judges. Configurations of a method are those that were recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from analysis import curve_table
from benchmarks.replay.searcher import Floats
from benchmarks.replay.table import Episode, Recorded
from benchmarks.tables.auto_specs import CONDITIONS, METHODS, named
from search_spaces.errors import UserError
from search_spaces.parameter import Value

#: The key under which a configuration says which method it belongs to.
METHOD = "method"


class World:
    """A data set's tables, by method. They have the same seeds and rounds."""

    def __init__(self, name: str, tables: Mapping[str, Recorded]) -> None:
        """Raises `UserError` where seeds or rounds differ, or are too few."""
        self.name, self.tables = name, dict(tables)
        shapes = {(table.table.seeds, table.rounds) for table in self.tables.values()}
        if len(shapes) > 1:
            counts = ", ".join(f"{method} {len(table.table.seeds)}" for method, table in self.tables.items())
            raise UserError(
                f"The tables of {name} do not have the same seeds ({counts}). Record the rest of them with "
                f"`make tables ONLY=auto/{name}`."
            )
        ((seeds, self.rounds),) = shapes
        if len(seeds) < 4:
            raise UserError(
                f"The tables of {name} have {len(seeds)} seed{'s' * (len(seeds) > 1)}, and `auto` needs four: one to "
                f"search on, a fresh one, and two held out. Record them with `make tables ONLY=auto/{name}`."
            )

    def episode(self, repetition: int) -> AllMethods:
        """The repetition of that number; the same whenever it is asked for."""
        return AllMethods({method: table.episode(repetition) for method, table in self.tables.items()})

    def describe(self) -> str:
        """What it was made of, in a sentence."""
        first = next(iter(self.tables.values()))
        return f"{', '.join(self.tables)}. Each: {first.size}"


class AllMethods:
    """One repetition. Configurations carry their method."""

    def __init__(self, parts: Mapping[str, Episode]) -> None:
        self.parts = dict(parts)
        self.seeds = min(part.seeds for part in self.parts.values())
        self.best = max(part.best for part in self.parts.values())
        self.blind = float(np.mean([part.blind for part in self.parts.values()]))

    def _of(self, values: Mapping[str, Value]) -> tuple[Episode, dict[str, Value]]:
        return self.parts[str(values[METHOD])], {key: value for key, value in values.items() if key != METHOD}

    def curve(self, values: Mapping[str, Value], seed: int) -> Floats:
        part, own = self._of(values)
        return part.curve(own, seed)

    def seconds(self, values: Mapping[str, Value], seed: int) -> float:
        part, own = self._of(values)
        return part.seconds(own, seed)

    def truth_curve(self, values: Mapping[str, Value]) -> Floats:
        part, own = self._of(values)
        return part.truth_curve(own)

    def expected(self, values: Mapping[str, Value]) -> float:
        part, own = self._of(values)
        return part.expected(own)

    def truth(self, values: Mapping[str, Value] | None) -> float:
        """The last round's mean test metric over the held-out seeds; of nothing, that of a blind choice."""
        return self.blind if values is None else float(self.truth_curve(values)[-1])


def worlds(folder: Path, methods: Sequence[str] = METHODS) -> dict[str, World]:
    """The data sets of which the table of every method is recorded. Raises `UserError` as `World`."""
    found = {}
    for dataset in CONDITIONS:
        paths = {method: folder / f"{named(dataset, method)}.npz" for method in methods}
        if all(path.exists() for path in paths.values()):
            tables = {method: Recorded(curve_table.load(path)) for method, path in paths.items()}
            found[dataset] = World(dataset, tables)
    return found
