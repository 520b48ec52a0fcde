"""FedAvg, Ditto and FedProto by PFLlib's own servers and clients and by fedtune, on real images."""

from __future__ import annotations

import os
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.cases.peers import ENVIRONMENTS
from benchmarks.images import fashion
from benchmarks.measure import Arm, Processes, interleave, ratio
from benchmarks.results import Case

TITLE = "Against PFLlib"
TEXT = """
PFLlib's own FedAvg, Ditto and FedProto with its CNN (fedtune's `cnn2`) beside fedtune's, one thread each, one round at a time in turn: ten clients of 640
images of Fashion-MNIST (28×28), one pass in batches of 64, Ditto with one more of its own model. *Rounds alone* measure no model; *measured* is as either
does it by default: PFLlib measures every client's model on its training images too, and FedProto's by distances that it takes one by one; fedtune measures
the global model on all test images, and every client's own on that client's share.
"""
CLIENTS, STEPS, BATCH, TEST = 10, 10, 64, 1000
#: fedtune's parameters beside those that all share, and PFLlib's weight μ.
METHODS: dict[str, tuple[dict[str, Any], float]] = {
    "fedavg": ({}, 0.0),
    "ditto": ({"lambda": 0.1}, 0.1),
    "fedproto": ({"lambda": 1.0}, 0.0),
}
FOLDER = "PFLLIB"


def run(quick: bool) -> Case | None:
    folder = os.environ.get(FOLDER, "")
    python = ENVIRONMENTS / "pfllib" / "bin" / "python"
    data = fashion(CLIENTS * STEPS * BATCH, TEST)
    missing = (
        f"{FOLDER} must be the folder of PFLlib, got {folder!r}. PFLlib is in no registry: clone github.com/TsingZ0/PFLlib and "
        f"say `{FOLDER}=FOLDER make bench-peers`."
        if not (Path(folder) / "system" / "flcore").is_dir()
        else f"The environment of PFLlib is missing. `{FOLDER}={folder} make bench-peers` installs it."
        if not python.exists()
        else "Fashion-MNIST is not on this machine. `make data` brings it."
        if data is None
        else ""
    )
    if missing:
        print(missing, file=sys.stderr)
        return None
    case = Case("pfllib", TITLE, TEXT, quick=quick)
    rows: list[list[Any]] = []
    command = (str(python), "-m", "benchmarks.peers.pfllib_arm")
    for method, (more, mu) in list(METHODS.items())[: 1 if quick else 3]:
        values = _values(str(data), more)
        task = {"folder": folder, "method": method, "mu": mu, "dataset": str(data)}
        task |= {"clients": CLIENTS, "lr": values["lr"], "batch_size": BATCH}
        arms = {
            f"{who}, {how}": Arm("peer", task | {"evaluates": evaluated}, malloc=False, command=command)
            if who == "PFLlib"
            else Arm("Rounds", {"method": method, "values": values | {"eval_every": 1 if evaluated else 1000}})
            for how, evaluated in (("rounds alone", False), ("measured", True))
            for who in ("PFLlib", "fedtune")
        }
        with Processes(f"pfllib, {method}") as processes:
            for name, arm in arms.items():
                processes.start(name, arm)
            found = interleave(processes, {name: [name] for name in arms}, repeats=2 if quick else 5)
            said = {name: processes.describe(name) for name in arms}
        for how in ("rounds alone", "measured"):
            theirs, ours = found[f"PFLlib, {how}"], found[f"fedtune, {how}"]
            accuracies = [
                said[f"PFLlib, {how}"]["accuracy"],
                said[f"fedtune, {how}"]["row"].get("global_accuracy" if method == "fedavg" else "local_accuracy"),
            ]
            rows.append(
                [
                    method if how == "rounds alone" else "",
                    how,
                    statistics.median(theirs),
                    statistics.median(ours),
                    ratio(theirs, ours),
                    *(accuracies if how == "measured" else [None, None]),
                ]
            )
    case.table(
        "Seconds per round",
        ("method", "what", "PFLlib", "fedtune", "times as fast", "accuracy there", "accuracy here"),
        rows,
    )
    case.notes.append(
        "Accuracies are of one seed early in training, PFLlib's a round older, with first models and batches of each "
        "one's own: nothing is compared by them. PFLlib's FedProto is measured by its prototypes, fedtune's by the "
        "clients' heads."
    )
    return case


def _values(dataset: str, more: dict[str, Any]) -> dict[str, Any]:
    """fedtune's trial of the same work."""
    return {
        "dataset": dataset,
        "model": "cnn2",
        "clients": CLIENTS,
        "partition": "iid",
        "validation_fraction": 0.0,
        "local_steps": STEPS,
        "batch_size": BATCH,
        "lr": 0.005,
        "rounds": 1000,
    } | more
