"""`fedtune.load`: what was found earlier, read from its folder."""

from __future__ import annotations

from pathlib import Path

from analysis import auto, runs
from analysis.auto import Auto
from analysis.runs import Run


def load(path: str | Path) -> Run | Auto:
    """The run at `path`, or the search over several methods that `fedtune auto` made there.

    Raises `UserError` where it is neither."""
    return auto.load(path) if auto.is_auto(path) else runs.load(path)
