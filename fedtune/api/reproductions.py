"""All figures and tables that `fedtune reproduce` can make again, and what each costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis.reproduce.declaration import Reproduction, Row, declared, known
from fedtune.api.catalogue import spaces
from fedtune.machine import resources
from fedtune.planning.estimate import START_UP


def reproductions() -> list[dict[str, Any]]:
    """A row for each: name, title, source, datasets, small_federations, small_seed_rounds (rounds of single federations
    of the small form), seconds (of the small form on the cores of this machine, from the seconds of a round measured
    once), cores, paper_federations, paper_seed_rounds, claims (the paper's sentences)."""
    found = {(row["method"], row["name"]): row for row in spaces()}
    return [_row(declared(name), found) for name in known()]


def _row(one: Reproduction, found: Mapping[tuple[str, str], Mapping[str, Any]]) -> dict[str, Any]:
    cells = sum(_cells(one, row, found) for row in one.rows)
    small = cells * one.small_seeds * one.small_rounds
    cores = resources.cores()
    return {
        "name": one.name,
        "title": one.title,
        "source": one.source,
        "datasets": list(one.datasets),
        "small_federations": cells * one.small_seeds,
        "small_seed_rounds": small,
        "seconds": START_UP + small * one.seconds / cores,
        "cores": cores,
        "paper_federations": cells * one.seeds,
        "paper_seed_rounds": sum(_cells(one, row, found) * one.seeds * _rounds(one, row, found) for row in one.rows),
        "claims": [claim.says for claim in one.claims],
    }


def _cells(one: Reproduction, row: Row, found: Mapping[tuple[str, str], Mapping[str, Any]]) -> int:
    """How many configurations a row has."""
    if one.heatmap:
        return int(found[row.method, row.space]["cells"])
    return sum(other is row for other, _ in one.cells)


def _rounds(one: Reproduction, row: Row, found: Mapping[tuple[str, str], Mapping[str, Any]]) -> int:
    """The paper's, for its first data set."""
    first = one.on(next(iter(one.datasets)), row.method)
    named = {**found[row.method, row.space]["profiles"].get("paper", {}), **first, **one.values, **row.values}
    return int(named["rounds"])
