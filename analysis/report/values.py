"""Recorded values as text on the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis.labels import Labels, number
from analysis.runs import Run, when
from analysis.stats import summarise
from search_spaces import shell


def spread(labels: Labels, metric: str, values: Mapping[int, float]) -> str:
    """A metric's mean over seeds, with its standard deviation where it is shown in per cent: `87.31 ± 0.42 %`."""
    found = summarise(list(values.values()))
    scale = labels.scale(metric)
    return f"{found.shown(scale)} %" if scale == 100 else labels.shown(metric, found.mean)


def trials_named(run: Run) -> str:
    """The trials that stand for a search: `trial 7`, of a race `trials 7, 9 and 12`."""
    *others, last = map(str, sorted(run.chosen))
    return f"trials {', '.join(others)} and {last}" if others else f"trial {last}"


def one_line(value: Any, key: str = "") -> str:
    """What was recorded under `key`, on one line."""
    if isinstance(value, dict):
        return ", ".join(f"{k} {one_line(v, k)}" for k, v in value.items())
    if isinstance(value, list):
        return shell.join(map(str, value)) if key == "command" else ", ".join(map(one_line, value))
    return when(value) if key in ("started", "finished", "created") else number(value, 8)
