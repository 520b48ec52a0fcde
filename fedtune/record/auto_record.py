"""The frozen request of `fedtune auto`: `auto.yaml`, from which it is resumed and read."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.auto import request
from fedtune.record.journal import ELSEWHERE, Direction
from fedtune.record.run_directory import create, exists, write_document
from search_spaces import leftovers, run_folder
from search_spaces.files import cannot_write

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
        return {"version": VERSION, **data, "require": list(self.require)}

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


@dataclass(frozen=True)
class Part:
    """What is written of one method's search before it begins."""

    method: str
    experiment: Mapping[str, Any]
    space: Mapping[str, Any]
    provenance: Mapping[str, Any]
    directions: Sequence[Direction]


def create_auto(folder: Path, record: AutoRecord, parts: Sequence[Part]) -> None:
    """Makes the folder with its record and the run directory of every method's search, all at once or not at all.

    Raises `UserError` where the folder exists or the disk refuses."""
    temporary: Path | None = None
    held: int | None = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        leftovers.clear(folder.parent, lambda name: True, folders=_is_begun)
        held, temporary = leftovers.new_folder(folder)
        write_document(temporary / run_folder.AUTO, record.to_yaml())
        for part in parts:
            target = temporary / run_folder.SEARCHES / part.method
            create(target, part.experiment, part.space, part.provenance, part.directions)
        for name in (run_folder.BEST, run_folder.FRESH, run_folder.FINAL):
            (temporary / name).mkdir()
        if folder.exists():
            raise exists(folder)
        temporary.rename(folder)
    except OSError as error:
        if folder.exists():
            raise exists(folder) from error
        raise cannot_write(folder, error, ELSEWHERE) from error
    finally:
        if temporary is not None and temporary.exists():
            shutil.rmtree(temporary, ignore_errors=True)
        if held is not None:
            os.close(held)


def _is_begun(folder: Path) -> bool:
    """Whether `folder` holds nothing but what `create_auto` puts there."""
    begun = {run_folder.AUTO, run_folder.SEARCHES, run_folder.BEST, run_folder.FRESH, run_folder.FINAL}
    names = {leftovers.becomes(path.name) or path.name for path in folder.iterdir()}
    return bool(names) and names <= begun
