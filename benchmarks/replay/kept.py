"""Where some tables or searchers are replayed, what was measured before stays as it was, each with its own date."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

#: What is said of how often, when and where a table was replayed.
_OCCASION = ("repetitions", "slots", "seconds", "processes", "machine")


#: What must be the same of a table for searchers that were replayed at different times to stand side by side; and what
#: must be, too, where they were repeated equally often.
_ALIKE, _AS_OFTEN = ("text", "rounds"), ("blind", "floor")


def with_others(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """`now`, with the tables of `before` that were not replayed now, and the searchers of tables that were; those whose
    budgets were others are left out."""
    kept = before if before["budgets"] == now["budgets"] else {}
    tables = _dated(kept, kept)
    for name, entry in _dated(now, now).items():
        tables[name] = _joined(tables[name], entry) if name in tables else entry
    several = _dated(kept.get("objectives", {}), kept) | _dated(now["objectives"], now)
    return {
        **now,
        "tables": tables,
        "objectives": {**now["objectives"], "tables": several},
    }


def _joined(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """A table with the searchers of both times, those of `now` with that date. Another table has only the latter, as
    has one that was repeated more often; fewer repetitions are the first of the others. Where `now` has all that
    `before` has, it stands alone."""
    if before["searchers"].keys() <= now["searchers"].keys():
        return dict(now)
    old, new = before["occasion"], now["occasion"]
    keys = _ALIKE + (_AS_OFTEN if new["repetitions"] == old["repetitions"] else ())
    alike = all(_equal(before[key], now[key]) for key in keys)
    if not alike or new["repetitions"] > old["repetitions"] or new["slots"] != old["slots"]:
        return dict(now)
    dated = {name: entry | {"occasion": new} for name, entry in now["searchers"].items()}
    return {**before, "searchers": before["searchers"] | dated}


def _equal(before: Any, now: Any) -> bool:
    """Numbers up to rounding: with another number of threads a sum's last digits are others, and with these the lengths
    and noises that a table's model was fitted to."""
    if isinstance(before, float) and isinstance(now, float):
        return math.isclose(before, now, rel_tol=1e-6, abs_tol=1e-12)
    return bool(before == now)


def _dated(part: Mapping[str, Any], whole: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of a part of the results `whole`, each with its occasion."""
    occasion = {key: part.get(key, whole.get(key)) for key in _OCCASION}
    return {name: {"occasion": occasion} | entry for name, entry in part.get("tables", {}).items()}
