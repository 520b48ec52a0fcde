"""Where some tables are replayed, those that were measured before stay as they were, each with its own date."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.benchmarks.replay.cells import made

#: What is said of how often, when and where a table was replayed.
_OCCASION = ("repetitions", "slots", "seconds", "processes", "machine")


def with_others(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """`now`, with the tables of `before` that were not replayed now; those whose budgets were others are left out."""
    found = _joined(before, now, before, now)
    several = _joined(before.get("objectives", {}), now["objectives"], before, now)
    unrecorded = [name for name in now["unrecorded"] if name not in found["tables"]]
    return found | {"objectives": several, "unrecorded": unrecorded}


def whens(found: Mapping[str, Any]) -> str:
    """How often, when and where; where tables differ in that, of which tables."""
    groups: dict[str, list[str]] = {}
    for name, entry in found["tables"].items():
        groups.setdefault(made(entry.get("occasion", found)), []).append(name)
    if len(groups) < 2:
        return next(iter(groups), made(found))
    return "\n".join(f"{', '.join(f'`{name}`' for name in names)}: {when}" for when, names in groups.items())


def _joined(
    earlier: Mapping[str, Any], later: Mapping[str, Any], before: Mapping[str, Any], now: Mapping[str, Any]
) -> dict[str, Any]:
    """The part `later` of the results `now` with further tables of the part `earlier` of `before`."""
    tables: dict[str, Any] = {}
    for part, whole in ((earlier, before), (later, now)):
        if part.get("tables") and whole["budgets"] == now["budgets"]:
            occasion = {key: part.get(key, whole.get(key)) for key in _OCCASION}
            tables |= {name: {"occasion": occasion} | entry for name, entry in part["tables"].items()}
    return {**(later if later.get("tables") else earlier or later), "tables": tables}
