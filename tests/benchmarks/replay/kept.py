"""Where some tables are replayed, those that were measured before stay as they were, each with its own date."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.benchmarks.replay.cells import made

#: What is said of how often, when and where a table was replayed.
_OCCASION = ("repetitions", "slots", "seconds", "processes", "machine")


def with_others(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """`now`, with the tables of `before` that were not replayed now; those whose budgets were others are left out."""
    kept = before if before["budgets"] == now["budgets"] else {}
    tables = _dated(kept, kept) | _dated(now, now)
    several = _dated(kept.get("objectives", {}), kept) | _dated(now["objectives"], now)
    return {
        **now,
        "tables": tables,
        "objectives": {**now["objectives"], "tables": several},
        "unrecorded": [name for name in now["unrecorded"] if name not in tables],
    }


def whens(found: Mapping[str, Any]) -> str:
    """How often, when and where; where tables differ in that, of which tables."""
    groups: dict[str, list[str]] = {}
    for name, entry in found["tables"].items():
        groups.setdefault(made(entry.get("occasion", found)), []).append(name)
    if len(groups) < 2:
        return next(iter(groups), made(found))
    return "\n".join(f"{', '.join(f'`{name}`' for name in names)}: {when}" for when, names in groups.items())


def _dated(part: Mapping[str, Any], whole: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of a part of the results `whole`, each with its occasion."""
    occasion = {key: part.get(key, whole.get(key)) for key in _OCCASION}
    return {name: {"occasion": occasion} | entry for name, entry in part.get("tables", {}).items()}
