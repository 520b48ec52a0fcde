"""Reading the trials' rounds.jsonl files into one tidy table."""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from search_spaces import files, run_folder

#: Fields of a line of rounds.jsonl that hold one entry per client; not part of the tidy table.
LISTS = ("client_accuracy", "local_accuracies")
#: What may stand in the tidy table: numbers, text (which counts as not measured) and null.
_CELLS = frozenset((float, int, str, type(None)))
#: Whole numbers up to here are floats.
_WIDEST = int(sys.float_info.max)
#: A list of numbers within a line: most of its bytes, and none of them stands in the tidy table.
_LIST = re.compile(rb'\[[^][{}"\\\r\n]*\]')
_NAME = re.compile(r"[A-Za-z0-9_.:]{1,200}")


def read_rounds(folder: Path, numbers: Sequence[int]) -> pd.DataFrame:
    """All lines of all trials. A last line that was not written to its end is left out; of two lines for one (trial,
    round, seed) the last counts."""
    rows: dict[tuple[int, int, int], dict[str, Any]] = {}
    decode = json.JSONDecoder().decode  # one for all lines: `json.loads` looks for the encoding of each
    for number in numbers:
        try:
            raw = files.read_bytes(folder / run_folder.trial_folder(number) / run_folder.ROUNDS)
        except OSError:
            continue
        for line in _LIST.sub(b"[]", raw[: raw.rfind(b"\n") + 1]).splitlines():
            try:
                row = decode(line.decode())
            except (ValueError, RecursionError):
                continue
            if isinstance(row, dict) and _is_place(row.get("round")) and _is_place(row.get("seed")):
                measured = {name: row[name] for name in _names(tuple(row)) if type(row[name]) in _CELLS}
                rows[number, row["round"], row["seed"]] = measured | {"trial": number}
    if not rows:
        return pd.DataFrame(columns=["trial", "round", "seed"])
    frame = pd.DataFrame.from_records(list(rows.values()))
    metrics = [c for c in frame.columns if c not in ("trial", "round", "seed")]
    numeric = {c: pd.to_numeric(_no_wider(frame[c]), errors="coerce") for c in metrics}
    frame = pd.DataFrame({"trial": frame["trial"], "round": frame["round"], "seed": frame["seed"], **numeric})
    return frame.sort_values(["trial", "round", "seed"], ignore_index=True)


def _is_place(number: object) -> bool:
    """Whether a row can be that of round or seed `number`."""
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 2**62


@functools.lru_cache(1000)
def _names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Those of a row's names that may head a column: letters, digits, dots, colons and underscores."""
    return tuple(name for name in names if _NAME.fullmatch(name))


def _no_wider(column: pd.Series) -> pd.Series:
    """The column with whole numbers that no float holds as infinite ones, as 1e999 is read."""
    if column.dtype != object:
        return column
    return column.map(
        lambda v: v if type(v) is not int or abs(v) <= _WIDEST else float("inf") if v > 0 else -float("inf")
    )


def last_values(rounds: pd.DataFrame) -> pd.DataFrame:
    """By trial, every metric's value in the last round that measured it, averaged over seeds.

    It is nan where the metric was not finite for one of that round's seeds: the mean over the others would flatter a
    configuration that diverged in part."""
    metrics = [c for c in rounds.columns if c not in ("trial", "round", "seed")]
    groups = rounds.groupby(["trial", "round"], sort=True)
    measured = groups[metrics].count()
    partly = measured.gt(0) & measured.lt(groups.size(), axis=0)
    # `last` passes over nan, so what is to be nan in the end stands for a value until then.
    return groups[metrics].mean().mask(partly, np.inf).groupby(level="trial").last().replace(np.inf, np.nan)


def at_best_of(rounds: pd.DataFrame, number: int, metric: str, chooser: str, direction: str) -> dict[int, float]:
    """A trial's value of `metric`, by seed, in the round where `chooser` is largest (`maximize`) or smallest
    (`minimize`), the earliest of several; of the rounds that measured both, if any."""
    if not {metric, chooser} <= set(rounds.columns):
        return {}
    mine = rounds[(rounds["trial"] == number) & rounds[metric].notna() & rounds[chooser].notna()]
    groups = mine.sort_values(["seed", "round"]).groupby("seed")[chooser]
    picked = mine.loc[groups.idxmax() if direction == "maximize" else groups.idxmin()]
    return {int(seed): float(value) for seed, value in zip(picked["seed"], picked[metric], strict=True)}


def readout(rounds: pd.DataFrame, number: int, metric: str, how: str) -> dict[int, float]:
    """A trial's last (`last`), largest (`maximize`) or smallest (`minimize`) value of the metric by seed, if any."""
    if metric not in rounds.columns:
        return {}
    mine = rounds[(rounds["trial"] == number) & rounds[metric].notna()]
    groups = mine.groupby("seed")[metric]
    picked = groups.last() if how == "last" else groups.max() if how == "maximize" else groups.min()
    return {int(str(seed)): float(value) for seed, value in picked.items()}


def by_seed(rounds: pd.DataFrame, metric: str) -> dict[int, dict[int, float]]:
    """Of every trial that measured the metric, its last value by seed."""
    if metric not in rounds.columns:
        return {}
    measured = rounds.loc[rounds[metric].notna(), ["trial", "seed", "round", metric]]
    measured = measured.sort_values(["trial", "seed", "round"])
    last = measured.groupby(["trial", "seed"], as_index=False).last()
    found: dict[int, dict[int, float]] = {}
    for trial, seed, value in zip(last["trial"], last["seed"], last[metric], strict=True):
        found.setdefault(int(trial), {})[int(seed)] = float(value)
    return found
