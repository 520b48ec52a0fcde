"""A run directory as a search would write it, made up in milliseconds: for tests and for looking at reports.

python tests/analysis/synthetic.py FOLDER     writes FOLDER/grid and the other runs of `examples`
"""

from __future__ import annotations

import json
import math
import shutil
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from analysis.runs.study import read_study
from fedtune.record.experiment import Experiment
from search_spaces import run_folder
from search_spaces.metrics import METRICS
from tests import study_file

ALPHA = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5)
LAMBDA = (0.1, 0.3, 0.5, 0.7, 0.9)
START = datetime(2026, 11, 21, 9, 0)


def item(key: str, kind: str = "real", symbol: str = "", **more: Any) -> dict[str, Any]:
    """A searched parameter as the file of a space records it."""
    known = {"key": key, "kind": kind, "label": f"{symbol} ({key})" if symbol else key, "symbol": symbol, "doc": ""}
    known |= {"source": "", "unit": "", "low": None, "high": None, "log": False, "step": None}
    return known | {"options": [], "grid": None} | more


SEARCH = {
    one["key"]: one
    for one in (
        item(
            "alpha",
            symbol="α",
            doc="Weight of the EMA generator's samples.",
            source="Eq. 7",
            low=0.25,
            high=1.5,
            grid=list(ALPHA),
        ),
        item(
            "lambda",
            symbol="λ",
            doc="Momentum of the moving average.",
            source="Eq. 6",
            low=0.1,
            high=0.9,
            grid=list(LAMBDA),
        ),
        item("lr", symbol="η", doc="Learning rate of local training.", low=1e-3, high=1e-1, log=True),
        item(
            "merge_op",
            "choice",
            doc="How noise and label are merged.",
            source="Table 4",
            options=["mul", "add", "cat"],
        ),
        item("omega", symbol="ω", doc="Dirichlet concentration.", low=0.1, high=10.0, log=True, grid=[10.0, 1.0, 0.1]),
        item("dataset", "text", doc="Name of the data set.", source="Table 4", options=["digits", "svhn"]),
    )
}
FIXED = {
    "dataset": "digits",
    "model": "cnn_small",
    "clients": 10,
    "partition": "dir_class",
    "omega": 0.1,
    "rho": 10,
    "sigma": 4,
    "base": "fedrolex",
    "rounds": 9,
    "batch_size": 64,
}


def many(count: int) -> tuple[str, ...]:
    """Keys of so many made-up parameters, every other one on a logarithmic scale."""
    for i in range(count):
        low, high = (1e-5, 1e-1) if i % 2 else (0.0, 20.0)
        bounds: dict[str, Any] = {"low": low, "high": high, "log": bool(i % 2)}
        SEARCH[f"p{i:02}"] = item(f"p{i:02}", **bounds)
    return tuple(f"p{i:02}" for i in range(count))


def distribution(item: dict[str, Any]) -> BaseDistribution:
    if item["kind"] in ("choice", "text"):
        return CategoricalDistribution(item["options"])
    return FloatDistribution(item["low"], item["high"], log=item["log"])


def quality(params: dict[str, Any]) -> float:
    """The made-up accuracy a configuration ends at: a hill at α = 0.8, λ = 0.7, lr = 0.02, best with `mul`."""
    hill = math.exp(-((params.get("alpha", 0.8) - 0.8) ** 2) / 0.8 - (params.get("lambda", 0.7) - 0.7) ** 2 / 0.35)
    rate = math.exp(-((math.log10(params.get("lr", 0.02)) + 1.7) ** 2) / 0.8)
    return 0.35 + 0.5 * hill * rate - 0.05 * (params.get("merge_op", "mul") != "mul") + ease(params)


def ease(params: dict[str, Any]) -> float:
    """What the conditions add to it."""
    return 0.1 * math.log10(params.get("omega", 1.0)) - 0.2 * (params.get("dataset") == "svhn")


def rows(
    params: dict[str, Any], seeds: list[int], rounds: int, shift: float = 0.0, clients: int = 10
) -> list[dict[str, Any]]:
    found = []
    top = quality(params) + shift
    for seed in seeds:
        rng = np.random.default_rng([seed, int(1e6 * top)])
        level = top + 0.04 * np.random.default_rng(seed).standard_normal()
        for r in range(1, rounds + 1):
            base = 0.1 + (level - 0.1) * (1 - math.exp(-r / 3))
            accuracy, validation, local = (
                min(1.0, max(0.0, base + d + 0.012 * rng.standard_normal())) for d in (0.0, 0.01, -0.25)
            )
            found.append(
                {
                    "round": r,
                    "seed": seed,
                    "global_accuracy": accuracy,
                    "val_global_accuracy": validation,
                    "local_accuracy": local + 0.05 * (1 - top),
                    "val_local_accuracy": local + 0.05 * (1 - top) + 0.005,
                    "global_loss": -math.log(max(accuracy, 0.02)),
                    "val_global_loss": -math.log(max(validation, 0.02)),
                    "amp": accuracy - 0.01,
                    "fm": 0.02 * (1 - accuracy),
                    "wlp": max(0.0, accuracy - 0.2),
                    "train_loss": 2.3 * math.exp(-r / 5),
                    "bytes_up": 120_000 * clients,
                    "bytes_down": 120_000 * clients + 2_000,
                    "seconds_client": 0.5,
                    "seconds_server": 0.2,
                    "seconds_evaluation": 0.1,
                    "seconds": 0.8,
                    "client_accuracy": [accuracy] * clients,
                    "local_accuracies": [local] * (clients - 1) + [None],
                }
            )
    return found


def write(
    folder: Path,
    *,
    keys: tuple[str, ...] = ("alpha", "lambda"),
    sampler: str = "tpe",
    trials: int = 12,
    rounds: int = 9,
    seeds: tuple[int, ...] = (0, 1),
    method: str = "dfrd",
    title: str = "EMA generator, α × λ",
    kind: str = "search",
    shift: float = 0.0,
    metric: tuple[str, ...] = ("val_global_accuracy",),
    failures: bool = True,
    fixed: dict[str, Any] | None = None,
    seed: int = 3,
    figures: tuple[str, ...] = ("heatmap",),
    cells: int | None = None,
    source: dict[str, Any] | None = None,
    varied: tuple[str, ...] = (),
    points: list[dict[str, Any]] | None = None,
) -> Path:
    """Writes one run, of the `points` where given, whose keys `varied` are conditions. With `failures`, trials 3, 5 and
    7 are pruned, 8 diverged, 9 raised and the last one is still running (not for whole grids). `cells`: how many
    trials have begun; `source`: the exported configuration of a final run, whose parameters it has."""
    folder.mkdir(parents=True)
    grid = [{"alpha": a, "lambda": b} for a in ALPHA for b in LAMBDA] if sampler == "grid" else []
    grid = grid if points is None else points
    trials = len(grid) or trials
    begun = trials if cells is None else cells
    fixed = FIXED | {"rounds": rounds} | (fixed or {})
    search = [SEARCH[k] for k in keys if k not in varied]
    experiment = Experiment(
        name=folder.name,
        kind="run" if kind == "run" else "search",
        method=method,
        space="alpha_lambda",
        profile="small",
        values=source["parameters"] if source else fixed,
        metric=metric,
        select_on="validation" if metric[0].startswith("val_") else "test",
        trials=trials,
        rounds=rounds,
        seed=seed,
        seeds=tuple(seeds),
        sampler=sampler,
        scheduler="none" if sampler == "grid" else "asha",
        source=source or {},
    )
    (folder / run_folder.EXPERIMENT).write_text(yaml.safe_dump(experiment.to_yaml()))
    (folder / run_folder.SPACE).write_text(
        json.dumps(
            {
                "name": "alpha_lambda",
                "method": method,
                "title": title,
                "source": "DFRD, Fig. 5",
                "search": search,
                "vary": [SEARCH[k] for k in varied],
                "fixed": fixed,
                "figures": list(figures),
                "metric": list(metric),
            },
            ensure_ascii=False,
        )
    )
    (folder / run_folder.PROVENANCE).write_text(
        json.dumps(
            {
                "versions": {"fedtune": "0.1.0", "torch": "2.15.0", "ray": "2.60.0", "optuna": "5.0.0"},
                "git": "1c91e4b",
                "machine": {"host": "bench", "cores": 2},
                "device": "cpu",
                "command": ["fedtune", "search", method, "--space", "alpha_lambda"],
                "created": START.isoformat(),
            }
        )
    )
    rng = np.random.default_rng(seed)
    distributions = {k: distribution(SEARCH[k]) for k in keys}
    made: list[FrozenTrial] = []
    for n in range(len(seeds) if kind == "run" else begun):
        params = (
            made[0].params if made and kind == "run" else grid[n] if grid else {k: _draw(rng, SEARCH[k]) for k in keys}
        )
        if source:
            params = {}
        mine = [seeds[n]] if kind == "run" else list(seeds)
        planned, state, reason, error = rounds, TrialState.COMPLETE, "completed", None
        if failures and (cells or not grid):
            if n in (3, 5, 7) or (n > 12 and n % 3 == 1):
                planned, state, reason = 1 + 2 * (n % 2), TrialState.PRUNED, "scheduler"
            elif n == 8:
                planned, state, reason, error = (
                    2,
                    TrialState.FAIL,
                    "diverged",
                    "train_loss stopped being finite in round 2 (seed 1).",
                )
            elif n == 9:
                planned, state, reason, error = (
                    0,
                    TrialState.FAIL,
                    "error",
                    "RuntimeError: <b>out of memory</b> while building the generator.",
                )
            elif n == begun - 1:
                planned, state, reason = 4, TrialState.RUNNING, ""
        lines = rows(source["parameters"] if source else params, mine, planned, shift)
        trial_folder = folder / run_folder.trial_folder(n)
        trial_folder.mkdir(parents=True)
        (trial_folder / run_folder.CONFIG).write_text(yaml.safe_dump(fixed | params))
        (trial_folder / run_folder.ROUNDS).write_text("".join(json.dumps(line) + "\n" for line in lines))
        (trial_folder / run_folder.PARTITION).write_text(json.dumps(_partition(mine)))
        last = (
            {
                m: float(np.mean([x[m] for x in lines if x["round"] == planned]))
                for m in lines[0]
                if m not in ("round", "seed", "client_accuracy", "local_accuracies")
            }
            if lines
            else {}
        )
        attributes: dict[str, Any] = {"rounds": planned, "seconds": 0.8 * planned * len(mine)}
        attributes |= {"stop_reason": reason} if reason else {}
        attributes |= {"error": error} if error else {}
        steps = (
            {r: float(np.mean([x[metric[0]] for x in lines if x["round"] == r])) for r in range(1, planned + 1)}
            if len(metric) == 1
            else {}
        )
        values = [last[m] for m in metric] if state == TrialState.COMPLETE else None
        frozen = create_trial(
            state=state,
            params=params,
            distributions=distributions,
            user_attrs=attributes,
            intermediate_values=steps,
            values=values,
        )
        frozen.datetime_start = START + timedelta(seconds=5 * (n // 2) * 2 + n % 2)
        frozen.datetime_complete = (
            None if state == TrialState.RUNNING else frozen.datetime_start + timedelta(seconds=0.5 + planned)
        )
        made.append(frozen)
    study_file.write(folder / run_folder.STUDY, folder.name, [METRICS[m].direction for m in metric], made)
    return folder


def multiply(folder: Path, times: int) -> None:
    """Repeats a run's trials, study and folders, `times` times: a large run in seconds instead of minutes."""
    path = folder / run_folder.STUDY
    directions, trials = read_study(path)
    study_file.write(path, folder.name, directions, [trial for _ in range(times) for trial in trials])
    for original in sorted((folder / run_folder.TRIALS).iterdir()):
        for k in range(1, times):
            shutil.copytree(original, folder / run_folder.trial_folder(int(original.name) + k * len(trials)))


def _draw(rng: np.random.Generator, item: dict[str, Any]) -> Any:
    if item["kind"] == "choice":
        return str(rng.choice(item["options"]))
    if item["log"]:
        return float(10 ** rng.uniform(math.log10(item["low"]), math.log10(item["high"])))
    return float(rng.uniform(item["low"], item["high"]))


def _partition(seeds: list[int], clients: int = 10, classes: int = 10) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for seed in seeds:
        shares = np.random.default_rng(seed).dirichlet([0.1] * clients, classes)
        found[str(seed)] = (130 * shares).round().astype(int).T.tolist()
    return found | {"hash": {str(s): f"{s:016x}" for s in seeds}}


def examples(folder: Path) -> Path:
    """Writes grid (30 trials), tpe (24, all outcomes), wide (40, four parameters), other (8, FedAvg), final (3 seeds)
    and pareto (two objectives)."""
    plain: dict[str, Any] = {"failures": False, "figures": ()}
    write(folder / "grid", sampler="grid", rounds=3)
    write(folder / "tpe", trials=24)
    write(folder / "wide", trials=40, keys=("alpha", "lambda", "lr", "merge_op"), figures=())
    write(folder / "other", trials=8, keys=("lr",), method="fedavg", shift=-0.08, **plain)
    write(folder / "final", keys=(), seeds=(1000, 1001, 1002), kind="run", **plain)
    write(folder / "pareto", trials=10, metric=("val_global_accuracy", "bytes_up"), failures=False)
    return folder


if __name__ == "__main__":
    examples(Path(sys.argv[1]))
