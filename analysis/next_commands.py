"""The commands that train on fresh seeds, as they are suggested everywhere: a search's best configuration, and a known
method on the same problem, to be held against it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces import shell

#: On so many fresh seeds: with three a paired test sees only large differences.
FRESH_SEEDS = 5
#: What `fedtune run fedavg` takes where nothing else is asked for: settings of the federation and of local training, in
#: order of declaration. Results are read without the code that declares these; a test holds the two against each other.
TAKEN: Mapping[str, Any] = {
    "dataset": "digits",
    "model": "auto",
    "rounds": 10,
    "clients": 10,
    "active_clients": 0,
    "partition": "dir_class",
    "omega": 0.1,
    "classes_per_client": 2,
    "min_samples": 10,
    "partition_seed": -1,
    "rho": 0,
    "sigma": 4,
    "stragglers": 0.0,
    "straggler_work": 0.0,
    "validation_fraction": None,  # what it takes depends on how many samples there are: it is always said
    "client_test_fraction": 0.0,
    "target": 0.0,
    "target_metric": "global_accuracy",
    "attack_images": 0,
    "attack_steps": 300,
    "attack_private": "random",
    "batch_norm": "batch",
    "precision": "fp32",
    "executor": "auto",
    "own_metrics": "none",
    "eval_every": 1,
    "eval_test": "every",
    "lr": 0.01,
    "local_steps": 20,
    "local_epochs": 0,
    "batch_size": 64,
    "momentum": 0.0,
    "weight_decay": 0.0,
}
#: The methods that results are held against, and what each takes.
BASELINES: Mapping[str, Mapping[str, Any]] = {"fedavg": TAKEN, "fedrolex": {**TAKEN, "rho": 10}}


def run_command(what: str) -> str:
    """For a run directory or an exported file."""
    return shell.join(["fedtune", "run", what, "--seeds", str(FRESH_SEEDS)])


def export_command(run: str, *options: str, output: str = "best.yaml") -> str:
    """The same by way of a file, which can be kept and edited."""
    return f"{shell.join(['fedtune', 'export', run, *options, '-o', output])} && {run_command(output)}"


def baseline(values: Mapping[str, Any]) -> str:
    """The method to hold a configuration against: FedAvg, or, where clients' models differ in width, which FedAvg
    cannot have, FedRolex, which averages such."""
    rho = values.get("rho")
    return "fedrolex" if isinstance(rho, (int, float)) and rho > 0 else "fedavg"


def same_problem(method: str, values: Mapping[str, Any]) -> list[str]:
    """The options with which that baseline trains on the problem of a configuration, all of whose `values` are given:
    what differs from what it would take, in order of declaration."""
    words: list[str] = []
    for key, taken in BASELINES[method].items():
        if (value := values.get(key, taken)) != taken:
            words += [f"--{key}", str(value)] if key in ("dataset", "rounds") else ["--set", f"{key}={value}"]
    return words
