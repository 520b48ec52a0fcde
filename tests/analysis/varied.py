"""Synthetic runs under several conditions of the experiment, and runs with another request, for tests of runs, cells,
tables and figures."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from analysis.runs import Run
from search_spaces import run_folder
from tests.analysis import synthetic

OMEGAS = (10.0, 1.0, 0.1)
MERGES = ("mul", "add")


def fairness(folder: Path, **changes: Any) -> Path:
    """Two variants under three conditions, three seeds: trials 0 to 2 are `mul`, the rest `add`."""
    points = [{"merge_op": m, "omega": w} for m, w in itertools.product(MERGES, OMEGAS)]
    settings = {"keys": ("merge_op", "omega"), "varied": ("omega",), "points": points, "sampler": "grid", "trials": 6}
    settings |= {"seeds": (0, 1, 2), "rounds": 3, "figures": ("factor",), "failures": False}
    return synthetic.write(folder, **settings | changes)


def crossed(folder: Path, **changes: Any) -> Path:
    """One configuration under two data sets and three ω."""
    points = [{"dataset": d, "omega": w} for d, w in itertools.product(("digits", "svhn"), OMEGAS)]
    settings = {"keys": ("dataset", "omega"), "varied": ("dataset", "omega"), "points": points, "sampler": "grid"}
    settings |= {"seeds": (0, 1, 2), "rounds": 3, "trials": 6, "figures": (), "failures": False}
    return synthetic.write(folder, **settings | changes)


def last(folder: Path, trial: int, metric: str) -> dict[int, float]:
    """A trial's last values by seed, read from its file alone."""
    lines = (folder / run_folder.trial_folder(trial) / run_folder.ROUNDS).read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    end = max(row["round"] for row in rows)
    return {row["seed"]: row[metric] for row in rows if row["round"] == end}


def curves(folder: Path, trial: int, metric: str) -> dict[int, list[float]]:
    """A trial's values round by round, by seed, read from its file alone."""
    rows = [
        json.loads(line)
        for line in (folder / run_folder.trial_folder(trial) / run_folder.ROUNDS).read_text().splitlines()
    ]
    found: dict[int, list[float]] = {}
    for row in sorted(rows, key=lambda row: row["round"]):
        found.setdefault(row["seed"], []).append(row[metric])
    return found


def mean_std(values: dict[int, float]) -> tuple[float, float]:
    found = np.array(list(values.values()))
    return float(found.mean()), math.sqrt(((found - found.mean()) ** 2).sum() / (len(found) - 1))


def asked(run: Run, **changes: Any) -> Run:
    """The run as if something else had been asked for."""
    record = dataclasses.replace(run.record, experiment={**run.record.experiment, **changes})
    return dataclasses.replace(run, record=record)
