"""The tidy table of the trials' rounds: a row for every line of their rounds.jsonl files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from analysis.runs.lines import PLACE, Lines, names, read_lines


def read_rounds(folder: Path, numbers: Sequence[int]) -> pd.DataFrame:
    """The table of these trials, whose lines are read for it."""
    return tidy(read_lines(folder, numbers))


def tidy(lines: Lines) -> pd.DataFrame:
    """One row per trial, round and seed, sorted by these, and one column per metric."""
    places = [(number, *place) for number, mine in lines.items() for place in mine]
    if not places:
        return pd.DataFrame(columns=list(PLACE))
    rows = [line for mine in lines.values() for line in mine.values()]
    frame = pd.DataFrame(places, columns=list(PLACE))
    measured = pd.DataFrame.from_records(rows).reindex(columns=names(lines))
    numeric = {name: pd.to_numeric(measured[name], errors="coerce") for name in measured.columns}
    return pd.concat([frame, pd.DataFrame(numeric)], axis=1).sort_values(list(PLACE), ignore_index=True)
