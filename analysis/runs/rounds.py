"""The lines of the trials' rounds.jsonl files, and what is read from them by trial and seed.

The lines are plain Python: a listing of runs needs a few last values, and would wait longer for pandas than for these.
Tables of them are made when they are asked for.
"""

from __future__ import annotations

import functools
import json
import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from search_spaces import client_columns, files, run_folder

if TYPE_CHECKING:
    import pandas as pd

#: What a round measured on one seed, by metric; nan where it is no number.
Line = Mapping[str, float]
#: By trial, and by round and seed in the order of the file. A line has its `round` and `seed` too.
Lines = Mapping[int, Mapping[tuple[int, int], Line]]

#: Fields of a line that say where it belongs.
PLACE = ("trial", "round", "seed")
#: Whole numbers up to here are floats.
_WIDEST = int(sys.float_info.max)
#: A list of numbers within a line: most of its bytes, and none of them stands in the tidy table.
_LIST = re.compile(rb'\[[^][{}"\\\r\n]*\]')
_NAME = re.compile(r"[A-Za-z0-9_.:]{1,200}")


def read_lines(folder: Path, numbers: Sequence[int]) -> Lines:
    """The lines of these trials, as far as they have any. A last line that was not written to its end is left out; of
    two lines for one (trial, round, seed) the last counts."""
    decode = json.JSONDecoder().decode  # one for all lines: `json.loads` looks for the encoding of each
    found: dict[int, dict[tuple[int, int], Line]] = {}
    for number in numbers:
        try:
            raw = files.read_bytes(folder / run_folder.trial_folder(number) / run_folder.ROUNDS)
        except OSError:
            continue
        mine: dict[tuple[int, int], Line] = {}
        for line in _LIST.sub(b"[]", raw[: raw.rfind(b"\n") + 1]).splitlines():
            try:
                row = decode(line.decode())
            except (ValueError, RecursionError):
                continue
            if isinstance(row, dict) and _is_place(row.get("round")) and _is_place(row.get("seed")):
                mine[row["round"], row["seed"]] = {
                    name: cell
                    for name in _names(tuple(row))
                    # Nearly all are floats, and a call for each would take as long as reading it.
                    if (cell := value if type(value := row[name]) is float else _cell(value)) is not None
                }
        if mine:
            found[number] = mine
    return found


def _is_place(number: object) -> bool:
    """Whether a row can be that of round or seed `number`."""
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 2**62


@functools.lru_cache(1000)
def _names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Those of a row's names that may head a column: letters, digits, dots, colons and underscores,
    and not those of lists over clients."""
    return tuple(name for name in names if _NAME.fullmatch(name) and name not in client_columns.NAMES)


def _cell(value: object) -> float | None:
    """A number; nan for text and null, which count as not measured; None for what has no place in a table. A whole
    number that no float holds is infinite, as 1e999 is read."""
    if type(value) is float:
        return value
    if type(value) is int:
        return value if abs(value) <= _WIDEST else math.inf if value > 0 else -math.inf
    return math.nan if value is None or isinstance(value, str) else None


def metric_names(lines: Lines) -> list[str]:
    """The metrics of all lines, in the order in which they come."""
    several = dict.fromkeys(tuple(line) for line in _each(lines))  # nearly all lines have the same ones
    return [name for name in dict.fromkeys(chain.from_iterable(several)) if name not in PLACE]


def count_lines(lines: Lines) -> int:
    """How many there are: rounds of single federations."""
    return sum(map(len, lines.values()))


def total_of(lines: Lines, name: str) -> float:
    """The sum over all lines that measured it."""
    return math.fsum(value for line in _each(lines) if not math.isnan(value := line.get(name, math.nan)))


def _each(lines: Lines) -> Iterable[Line]:
    return (line for mine in lines.values() for line in mine.values())


def by_seed(lines: Lines, metric: str) -> dict[int, dict[int, float]]:
    """Of every trial that measured the metric, its last value by seed."""
    found = {number: readout(lines, number, metric, "last") for number in sorted(lines)}
    return {number: values for number, values in found.items() if values}


def curves_by_seed(lines: Lines, metric: str) -> dict[int, dict[int, dict[int, float]]]:
    """Of every trial that measured the metric, its values by seed and round."""
    found: dict[int, dict[int, dict[int, float]]] = {}
    for number in sorted(lines):
        for (round_, seed), line in sorted(lines[number].items(), key=lambda item: item[0][::-1]):
            if not math.isnan(value := line.get(metric, math.nan)):
                found.setdefault(number, {}).setdefault(seed, {})[round_] = float(value)
    return found


def readout(lines: Lines, number: int, metric: str, how: str) -> dict[int, float]:
    """A trial's last (`last`), largest (`maximize`) or smallest (`minimize`) value of the metric by seed, if any."""
    found: dict[int, float] = {}
    for seed, line in _in_order(lines, number):
        if not math.isnan(value := line.get(metric, math.nan)):
            before = found.get(seed, value)
            found[seed] = float(
                value if how == "last" else max(value, before) if how == "maximize" else min(value, before)
            )
    return dict(sorted(found.items()))


def at_best_of(lines: Lines, number: int, metric: str, chooser: str, direction: str) -> dict[int, float]:
    """A trial's value of `metric`, by seed, in the round where `chooser` is largest (`maximize`) or smallest
    (`minimize`), the earliest of several; of the rounds that measured both, if any."""
    sign = 1.0 if direction == "maximize" else -1.0
    best: dict[int, tuple[float, float]] = {}
    for seed, line in _in_order(lines, number):
        value, chosen_by = line.get(metric, math.nan), sign * line.get(chooser, math.nan)
        if math.isnan(value) or math.isnan(chosen_by):
            continue
        if seed not in best or chosen_by > best[seed][0]:
            best[seed] = (chosen_by, float(value))
    return {seed: value for seed, (_, value) in sorted(best.items())}


def _in_order(lines: Lines, number: int) -> Iterable[tuple[int, Line]]:
    """A trial's lines with their seeds, round by round."""
    return ((seed, line) for (_, seed), line in sorted(lines.get(number, {}).items(), key=lambda item: item[0]))


def last_values(lines: Lines) -> dict[int, dict[str, float]]:
    """By trial, every metric's value in the last round that measured it, averaged over seeds; every trial has all of
    the metrics.

    It is nan where the metric was not finite for one of that round's seeds: the mean over the others would flatter a
    configuration that diverged in part."""
    metrics = metric_names(lines)
    return {number: _last_of(lines[number], metrics) for number in sorted(lines)}


def _last_of(mine: Mapping[tuple[int, int], Line], metrics: Sequence[str]) -> dict[str, float]:
    rounds: dict[int, list[Line]] = {}
    for (round_, _), line in sorted(mine.items(), key=lambda item: item[0]):
        rounds.setdefault(round_, []).append(line)
    found: dict[str, float] = dict.fromkeys(metrics, math.nan)
    open_ = dict.fromkeys(metrics)
    for round_ in sorted(rounds, reverse=True):
        for metric in list(open_):
            values = [line.get(metric, math.nan) for line in rounds[round_]]
            lacking = sum(map(math.isnan, values))
            if lacking == len(values):
                continue
            del open_[metric]
            if not lacking and (mean := sum(values) / len(values)) != math.inf:
                found[metric] = mean
        if not open_:
            break
    return found


def read_rounds(folder: Path, numbers: Sequence[int]) -> pd.DataFrame:
    """The table of these trials, whose lines are read for it."""
    return rounds_table(read_lines(folder, numbers))


def rounds_table(lines: Lines) -> pd.DataFrame:
    """One row per trial, round and seed, sorted by these, and one column per metric."""
    import pandas as pd

    places = [(number, *place) for number, mine in lines.items() for place in mine]
    if not places:
        return pd.DataFrame(columns=list(PLACE))
    rows = [line for mine in lines.values() for line in mine.values()]
    frame = pd.DataFrame(places, columns=list(PLACE))
    measured = pd.DataFrame.from_records(rows).reindex(columns=metric_names(lines))
    numeric = {name: pd.to_numeric(measured[name], errors="coerce") for name in measured.columns}
    return pd.concat([frame, pd.DataFrame(numeric)], axis=1).sort_values(list(PLACE), ignore_index=True)


def curves_table(rounds: pd.DataFrame) -> pd.DataFrame:
    """The table averaged over seeds: trial, round, seeds (count), every metric, and `<metric>:std`."""
    import pandas as pd

    if rounds.empty:
        return pd.DataFrame(columns=["trial", "round", "seeds"])
    metrics = [name for name in rounds.columns if name not in PLACE]
    groups = rounds.groupby(["trial", "round"], sort=True)
    mean = groups[metrics].mean()
    spread = groups[metrics].std().add_suffix(":std")
    return pd.concat([groups.size().rename("seeds"), mean, spread], axis=1).reset_index()
