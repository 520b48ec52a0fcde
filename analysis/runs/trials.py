"""The trials of a run: their table, where their values come from, what was searched in them, and the files in their
folders that say how each was configured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.runs.mappings import read_json, read_yaml
from analysis.runs.shapes import each, is_plain, is_text, is_whole
from search_spaces import run_folder
from search_spaces.metrics import is_unreached

if TYPE_CHECKING:
    import pandas as pd
    from optuna.trial import FrozenTrial

#: Of the table, before the searched parameters.
COLUMNS = ["number", "state", "value", "values", "stop_reason", "rounds", "seconds", "error", "origin", "taken"]
COLUMNS += ["start", "end"]


def trials_table(trials: Sequence[FrozenTrial], taken: int) -> pd.DataFrame:
    """One row per trial, see `analysis.runs.run.Run.trials`. `taken`: how many of the first results are earlier
    runs'."""
    import pandas as pd

    rows = []
    for t in trials:
        attributes = t.user_attrs
        values = tuple(t.values) if t.values else ()
        row = {
            "number": t.number,
            "state": t.state.name,
            "value": float(values[0]) if values and not is_unreached(values[0]) else math.nan,
            "values": values,
            "stop_reason": attributes.get("stop_reason") or "",
            "rounds": attributes.get("rounds"),
            "seconds": attributes.get("seconds"),
            "error": attributes.get("error") or "",
            "origin": origin(t),
            "taken": t.number < taken,
            "start": t.datetime_start,
            "end": t.datetime_complete,
        }
        row |= t.params
        rows.append(row)
    frame = pd.DataFrame(rows, columns=None if rows else COLUMNS)
    for name in ("rounds", "seconds"):
        frame[name] = pd.to_numeric(frame[name], errors="coerce")
    return frame


def searched_parameters(
    listed: Sequence[Mapping[str, Any]], varied: Sequence[Mapping[str, Any]], trials: Sequence[FrozenTrial]
) -> list[dict[str, Any]]:
    """The parameters that are `listed` as searched in space.json, and those that only the trials tell of: children of a
    choice, or all of them where there is no space.json. None is a condition that is `varied`."""
    found = [dict(item) for item in listed]
    known = {item["key"] for item in (*found, *varied)}
    for trial in trials:
        for key, distribution in trial.distributions.items():
            if key not in known:
                known.add(key)
                found.append(
                    {
                        "key": key,
                        "kind": "choice" if hasattr(distribution, "choices") else "real",
                        "log": getattr(distribution, "log", False),
                    }
                )
    return found


def origin(trial: FrozenTrial) -> str:
    """Where a trial's values come from, such as `the paper's values`; empty where the sampler proposed them."""
    return " ".join(str(trial.user_attrs.get("from") or "").split())[:200]


def read_config(folder: Path, number: int) -> dict[str, Any]:
    """The parameters in a trial's config.yaml, as far as they can be read."""
    stored = read_yaml(folder / run_folder.trial_folder(number) / run_folder.CONFIG, missing={})
    return {key: value for key, value in stored.items() if isinstance(key, str) and is_plain(value)}


def read_partition(folder: Path, number: int) -> dict[int, np.ndarray]:
    """Samples of every class at every client of a trial, (clients, classes), by seed; empty where it was not
    recorded."""
    stored = read_json(folder / run_folder.trial_folder(number) / run_folder.PARTITION, missing={})
    counts = {int(k): v for k, v in stored.items() if k.isascii() and k.lstrip("-").isdigit() and _is_table(v)}
    return {seed: np.asarray(rows, dtype=np.int64) for seed, rows in counts.items()}


def read_confusion(folder: Path, number: int) -> dict[int, dict[str, np.ndarray]]:
    """Samples of class i that a trial's global model takes for class j in its last round, (classes, classes), by seed
    and part of the data (`validation`, `test`); empty where it was not recorded."""
    stored = read_json(folder / run_folder.trial_folder(number) / run_folder.CONFUSION, missing={})
    return {
        int(seed): {
            part: table
            for part in ("validation", "test")
            if _is_table(parts.get(part)) and len(set((table := np.asarray(parts[part], dtype=np.int64)).shape)) == 1
        }
        for seed, parts in stored.items()
        if seed.isascii() and seed.lstrip("-").isdigit() and isinstance(parts, dict)
    }


def read_names(folder: Path, number: int) -> tuple[list[str], list[str]]:
    """The names of a trial's classes and clients; empty where they have none, or these were not recorded."""
    stored = read_json(folder / run_folder.trial_folder(number) / run_folder.PARTITION, missing={})

    def texts(key: str) -> list[str]:
        found = stored.get(key)
        return list(found) if isinstance(found, list) and each(is_text)(found) else []

    return texts("classes"), texts("clients")


#: Rows of equal length, of numbers of samples.
_rows = each(each(is_whole(0), 1), 1)


def _is_table(value: object) -> bool:
    return _rows(value) and isinstance(value, list) and len({len(row) for row in value}) == 1
