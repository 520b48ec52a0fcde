"""The same FedAvg round by Flower, pfl-research, a plain loop and fedtune on two cores."""

from __future__ import annotations

import statistics
import sys
from typing import Any

from benchmarks.cases.client_round import federation
from benchmarks.images import DIGITS, kinds
from benchmarks.measure import ROOT, Arm, Processes, interleave, ratio
from benchmarks.results import Case

TITLE = "Against Flower and pfl-research"
TEXT = """
FedAvg with LeNet-5 (61,706 weights, 28×28): ten clients of 1,280 images, 20 steps of 64, then the 1,000 test images; the same file of images for
all, of digits and then of Fashion-MNIST, one round at a time in turn. Each simulator in its best mode on two cores: Flower 1.41 with two actors of one core, pfl-research 0.6 under
torchrun with two processes, fedtune with two packed trials (seconds per round of either, and per round counted over both). The peers' clients run the plain
loop's training step, as a user of theirs would write it.
"""
ENVIRONMENTS = ROOT / ".venv-peers"
#: What takes turns, and the processes of each.
LANES = {
    "plain loop, 1 thread": ["plain"],
    "Flower, 2 actors": ["flower"],
    "pfl-research, 2 processes": ["pfl"],
    "fedtune, 1 trial, 1 thread": ["a"],
    "fedtune, 2 packed trials": ["a", "b"],
}


def run(quick: bool) -> Case | None:
    missing = [name for name in ("flower", "pfl") if not (ENVIRONMENTS / name / "installed").exists()]
    if missing:
        print(f"The environment of {missing[0]} is missing. `make bench-peers` installs it.", file=sys.stderr)
        return None
    case = Case("peers", TITLE, TEXT, quick=quick)
    for of in kinds(case):
        _measured(case, of)
    case.notes.append(
        "Accuracies are after equally many rounds and differ as far as shuffles do: the peers' are not fedtune's; "
        "all start near chance at this "
        "learning rate."
    )
    return case


def _measured(case: Case, of: str) -> None:
    """Rounds on these images; goals are of digits."""
    quick = case.quick
    values, _ = federation("lenet5", 28, 1, 2 if quick else 10, 2 if quick else 20, of=of)
    arms = _arms(values)
    with Processes(f"peers, {of}") as processes:
        for name, arm in arms.items():
            processes.start(name, arm)
        repeats = 2 if quick else 12 if of == DIGITS else 5
        found = interleave(processes, LANES, repeats=repeats, drop=1 if quick else 3)
        said = {name: processes.describe(name) for name in arms}
    accuracies = {
        "plain loop, 1 thread": said["plain"]["accuracy"],
        "Flower, 2 actors": said["flower"]["accuracy"],
        "pfl-research, 2 processes": said["pfl"]["accuracy"],
        "fedtune, 2 packed trials": said["b"]["row"]["global_accuracy"],
    }
    per_round = {
        name: [s / len(LANES[name]) if name.startswith("fedtune") else s for s in seconds]
        for name, seconds in found.items()
    }
    plain = per_round["plain loop, 1 thread"]
    case.table(
        f"FedAvg, LeNet-5, {of}, seconds per round",
        ("how", "s/round", "least", "most", "speed-up over plain", "accuracy at the end"),
        [
            [name, statistics.median(seconds), min(seconds), max(seconds), ratio(plain, seconds), accuracies.get(name)]
            for name, seconds in per_round.items()
        ],
    )
    if of != DIGITS:
        return
    packed = per_round["fedtune, 2 packed trials"]
    case.faster("Two packed trials against Flower at its best", 1.6, per_round["Flower, 2 actors"], packed)
    case.faster(
        "Two packed trials against pfl-research at its best", 1.0, per_round["pfl-research, 2 processes"], packed
    )
    case.faster("Two packed trials against the plain 1-thread loop, beside the peers", 2.0, plain, packed)


def _arms(values: dict[str, Any]) -> dict[str, Arm]:
    """The processes, by name: the plain loop, each simulator in its own environment, fedtune twice."""
    shared = {key: values[key] for key in ("dataset", "clients", "lr", "batch_size")}
    variables = {
        "BENCH_DATASET": values["dataset"],
        "BENCH_CLIENTS": str(values["clients"]),
        "BENCH_LR": str(values["lr"]),
        "BENCH_BATCH": "64",
    }
    torchrun = (
        str(ENVIRONMENTS / "pfl" / "bin" / "torchrun"),
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "benchmarks.peers.pfl_arm",
    )
    flower = (str(ENVIRONMENTS / "flower" / "bin" / "python"), "-m", "benchmarks.peers.flower_arm")
    trial = {"method": "fedavg", "values": values}
    return {
        "plain": Arm("plain", {"values": values}, malloc=False),
        "flower": Arm("peer", shared | {"actors": 2}, malloc=False, command=flower),
        "pfl": Arm("peer", shared, malloc=False, command=torchrun, variables=variables),
        "a": Arm("Rounds", trial),
        "b": Arm("Rounds", trial),
    }
