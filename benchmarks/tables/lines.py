"""What has been recorded of a table so far: a line for every federation, kept as soon as it ends.

`bench/tables/<name>.jsonl` begins with a line that says what is recorded, so that lines of another declaration are
never mixed in. `recorded/<name>.npz` is the table of those seeds of which all configurations are there; where the lines
are gone, recording goes on from it.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from analysis import curve_table
from analysis.curve_table import CurveTable
from benchmarks.tables.specs import Spec
from search_spaces import files
from search_spaces.dimension import Dimension
from search_spaces.errors import UserError
from search_spaces.metrics import METRICS, twin

RECORDED = Path(__file__).with_name("recorded")

#: A federation: the place of its configuration, and its seed.
Key = tuple[int, int]


@dataclass(frozen=True)
class Curve:
    """What one federation measured, round by round."""

    validation: tuple[float, ...]
    test: tuple[float, ...]
    #: Mean seconds of a round.
    seconds: float
    #: When, where and at which revision; None: taken over from the table.
    made: Mapping[str, str] | None = None
    #: Other metrics, by name.
    also: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


def declaration(spec: Spec) -> str:
    """A digest of all that decides what a federation of this table computes, but for its place and its seed."""
    searched = [_bounds(dimension) for dimension in spec.space.search.values()]
    data = {"space": searched, "settings": spec.settings(), "rounds": spec.rounds}
    data |= {"draw": spec.draw, "metric": spec.metric} | ({"also": spec.also} if spec.also else {})
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


def _bounds(d: Dimension) -> list[Any]:
    """What of a dimension decides which configurations are drawn: not the words that describe it."""
    children = {option: [_bounds(child) for child in several] for option, several in d.children.items()}
    return [d.key, d.parameter.kind, d.low, d.high, d.log, d.step, d.options, d.grid, children]


class Lines:
    """The file that holds what has been recorded of one table."""

    def __init__(self, spec: Spec, folder: Path, recorded: Path = RECORDED) -> None:
        """Reads what is there. Raises `UserError` where that belongs to another declaration."""
        self.spec, self.path = spec, folder / f"{spec.name}.jsonl"
        self.table = recorded / f"{spec.name}.npz"
        self.curves: dict[Key, Curve] = {}
        #: What the table said of how it was made, when recording went on from it.
        self.before: list[dict[str, Any]] = []
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists() and b"\n" in self.path.read_bytes():
            self._read()
        else:
            self._begin()

    def _read(self) -> None:
        raw = self.path.read_bytes()
        whole = raw[: raw.rfind(b"\n") + 1]
        if whole != raw:  # a line that was not written to its end
            files.replace(self.path, whole)
        head, *lines = (json.loads(line) for line in whole.splitlines())
        self._must_fit(head["declaration"], self.path)
        self.before = head["before"]
        for line in lines:
            self.curves[line["configuration"], line["seed"]] = Curve(
                tuple(_number(v) for v in line["validation"]),
                tuple(_number(v) for v in line["test"]),
                _number(line["seconds"]),
                line["made"],
                {name: tuple(_number(v) for v in values) for name, values in line.get("also", {}).items()},
            )

    def _begin(self) -> None:
        if self.table.exists():
            found = curve_table.load(self.table)
            self._must_fit(found.card["settings"].get("declaration", ""), self.table)
            self.before = list(found.card["made"])
            for c, s in zip(*map(list, np.nonzero(found.whole)), strict=True):
                self.curves[int(c), found.seeds[s]] = Curve(
                    tuple(found.validation[c, s].tolist()),
                    tuple(found.test[c, s].tolist()),
                    float(found.seconds[c, s]),
                    also={name: tuple(curves[c, s].tolist()) for name, curves in found.also.items()},
                )
        head = {"declaration": declaration(self.spec), "before": self.before}
        lines = [json.dumps(head), *(self._line(key, curve) for key, curve in self.curves.items())]
        files.replace(self.path, "".join(line + "\n" for line in lines), durable=True)

    def _must_fit(self, found: str, path: Path) -> None:
        if found != declaration(self.spec):
            raise UserError(
                f"{path} was recorded for another declaration of the table {self.spec.name!r}. Move it away to record "
                f"anew, or give the changed table another name."
            )

    @staticmethod
    def _line(key: Key, curve: Curve) -> str:
        return json.dumps(
            {
                "configuration": key[0],
                "seed": key[1],
                "validation": _plain(curve.validation),
                "test": _plain(curve.test),
                "also": {name: _plain(values) for name, values in curve.also.items()},
                "seconds": None if math.isnan(curve.seconds) else curve.seconds,
                "made": curve.made,
            }
        )

    def add(self, key: Key, curve: Curve) -> None:
        """Keeps a federation; returns when it is on the disk."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(self._line(key, curve) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.curves[key] = curve

    # -- the table -------------------------------------------------------------------------------------------------

    def complete_seeds(self, configurations: int) -> tuple[int, ...]:
        """The first seeds that every one of the first `configurations` has."""
        found = []
        for seed in self.spec.seed_numbers:
            if any((c, seed) not in self.curves for c in range(configurations)):
                break
            found.append(seed)
        return tuple(found)

    def second_stage(self) -> tuple[int, ...]:
        """The places of the configurations that get further seeds, the best first; empty before all of the first stage
        is there. One that diverged on a seed comes after all that did not."""
        spec = self.spec
        if not spec.best or len(self.complete_seeds(spec.configurations)) < spec.seeds:
            return ()
        sign = 1.0 if METRICS[spec.metric].direction == "maximize" else -1.0
        last = [
            [sign * self.curves[c, seed].validation[-1] for seed in spec.seed_numbers]
            for c in range(spec.configurations)
        ]
        means = np.nan_to_num(np.mean(last, axis=1), nan=-np.inf)
        return tuple(int(c) for c in np.argsort(-means, kind="stable")[: spec.best])

    def write(self, configurations: int) -> CurveTable | None:
        """Writes the table of the seeds that are complete. None where there is none yet, or where the table there is
        holds more."""
        seeds = self.complete_seeds(configurations)
        if not seeds:
            return None
        second = self.second_stage() if configurations == self.spec.configurations else ()
        further = [seed for seed in self.spec.further_seeds if second and all((c, seed) in self.curves for c in second)]
        if self.table.exists():
            there = curve_table.load(self.table)
            if there.whole.sum() > configurations * len(seeds) + len(second) * len(further):
                return None
        table = self._table(configurations, (*seeds, *further))
        self.table.parent.mkdir(parents=True, exist_ok=True)
        curve_table.save(table, self.table)
        return table

    def _table(self, configurations: int, seeds: Sequence[int]) -> CurveTable:
        spec = self.spec
        nothing = (math.nan,) * spec.rounds
        absent = Curve(nothing, nothing, math.nan, also=dict.fromkeys(spec.others, nothing))
        chosen = [[self.curves.get((c, seed), absent) for seed in seeds] for c in range(configurations)]
        there = np.array([[(c, seed) in self.curves for seed in seeds] for c in range(configurations)])
        drawn = {"sobol": "a scrambled Sobol sequence (seed 0)", "random": "independent draws (seed 0)"}
        card = {
            "name": spec.name,
            "method": spec.method,
            "space": spec.space.to_json(),
            "settings": spec.settings() | {"declaration": declaration(spec)},
            "dataset": str(spec.settings()["dataset"]),
            "metric": {"validation": spec.metric, "test": twin(spec.metric)},
            "direction": METRICS[spec.metric].direction,
            "how": f"{spec.title}. Configurations are the first {configurations} of "
            f"{drawn.get(spec.draw, 'the grid')}; every federation is simulated to its end, without Ray, in a process "
            f"with one thread. Declared are {spec.configurations} configurations and {spec.seeds} seeds.",
            "made": self.before + _sessions(curve for row in chosen for curve in row),
        }
        return CurveTable(
            card,
            tuple(spec.points(configurations)),
            tuple(seeds),
            np.array([[curve.validation for curve in row] for row in chosen], dtype=np.float64),
            np.array([[curve.test for curve in row] for row in chosen], dtype=np.float64),
            np.array([[curve.seconds for curve in row] for row in chosen], dtype=np.float32),
            {name: np.array([[curve.also[name] for curve in row] for row in chosen]) for name in spec.others},
            (there * spec.rounds).astype(np.uint16),
        )


def _plain(values: Sequence[float]) -> list[float | None]:
    """Numbers as JSON takes them."""
    return [None if math.isnan(value) else value for value in values]


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _sessions(curves: Iterator[Curve]) -> list[dict[str, Any]]:
    """What was made together: federations and seconds of simulating by revision, machine and day."""
    found: dict[str, dict[str, Any]] = {}
    for curve in curves:
        if curve.made is not None:
            entry = found.setdefault(json.dumps(curve.made), {**curve.made, "federations": 0, "seconds": 0.0})
            entry["federations"] += 1
            entry["seconds"] += 0.0 if math.isnan(curve.seconds) else curve.seconds * len(curve.validation)
    return [entry | {"seconds": round(entry["seconds"])} for entry in found.values()]
