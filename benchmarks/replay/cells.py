"""What the page's parts say alike: intervals as cells of a table, and when and where something was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def points(interval: Mapping[str, Any], digits: int = 1) -> str:
    """`2.1 (1.5 to 2.8)`, in hundredths."""
    if interval["value"] is None:
        return "–"
    value, low, high = (f"{100 * interval[key] + 0.0:.{digits}f}" for key in ("value", "low", "high"))
    return f"{value} ({low} to {high})"


def percent(interval: Mapping[str, Any]) -> str:
    """`88 (81 to 93) %`."""
    return "–" if interval["value"] is None else f"{points(interval, digits=0)} %"


def made(found: Mapping[str, Any]) -> str:
    """How often, where and when."""
    m, slots = found["machine"], found["slots"]
    return (
        f"{found['repetitions']} repetitions, {slots} slot{'s' * (slots != 1)}, {found['seconds']} s with "
        f"{found['processes']} process{'es' * (found['processes'] != 1)} on {m['processor']}, {m['date']}, revision "
        f"{m['revision']}.\n"
    )
