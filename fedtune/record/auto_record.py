"""The frozen request of `fedtune auto`: `auto.yaml`, from which it is resumed and read."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.auto import request
from search_spaces.metrics import declarations

VERSION = 1


@dataclass(frozen=True)
class Candidate:
    """A method that takes part."""

    name: str
    title: str
    #: What one round of one federation costs, by unit (`analysis.auto.request.UNITS`).
    costs: Mapping[str, float]


@dataclass(frozen=True)
class Excluded:
    """A method that was asked for and cannot take part, with one sentence why."""

    name: str
    why: str


@dataclass(frozen=True)
class AutoRecord:
    """What `auto.yaml` holds. Everything else stands in the runs."""

    name: str
    metric: str
    methods: tuple[Candidate, ...]
    excluded: tuple[Excluded, ...]
    #: The unit in which the budgets are counted, and the one in which rungs and gains are.
    unit: str
    cost: str
    #: Of the search over all methods, of the fresh seeds of their best configurations, of the final run.
    search_budget: float
    fresh_budget: float
    final_budget: float
    least: int
    equal: bool
    rounds: int
    seed: int
    seeds: int
    fresh: int
    final: int
    require: tuple[str, ...] = ()

    def costs(self, unit: str) -> tuple[float, ...]:
        """What a round of a trial costs, by method: over all its seeds."""
        return tuple(candidate.costs[unit] * self.seeds for candidate in self.methods)

    def to_yaml(self) -> dict[str, Any]:
        """Plain data for `auto.yaml`."""
        data = dataclasses.asdict(self)
        data["methods"] = [dict(item) for item in data["methods"]]
        data["excluded"] = [dict(item) for item in data["excluded"]]
        named = (self.metric, *(one.partition(">")[0].partition("<")[0] for one in self.require))
        own = declarations(named)
        return {"version": VERSION, **data, "require": list(self.require)} | ({"own_metrics": own} if own else {})

    @classmethod
    def read(cls, folder: Path) -> AutoRecord:
        """The record in `folder`. Raises `UserError` where there is none, or it was edited."""
        data = request.read(folder)
        rest = {key: value for key, value in data.items() if key != "version"}
        return cls(
            **rest
            | {
                "methods": tuple(Candidate(**item) for item in rest["methods"]),
                "excluded": tuple(Excluded(**item) for item in rest["excluded"]),
                "require": tuple(rest["require"]),
            }
        )
