"""A FedAvg round against the plain loop, the hand-written optimised loop and the kernels alone."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks import images
from benchmarks.fingerprint import apart
from benchmarks.images import DIGITS
from benchmarks.measure import Arm, Processes, interleave, ratio
from benchmarks.results import Case, Goal

TITLE = "FedAvg round, one thread"
TEXT = """
Local training of all clients, aggregation and evaluation, for each model in one process per arm; of two models on Fashion-MNIST too, which is resized for
the CNN. *Plain* copies the model for every client, keeps its
tensors contiguous, pools after the ReLU, picks batches from normalised tensors and reads the loss at every step; *optimised* is the same by hand with
everything that pays on a CPU; *kernels* is the sum of the best single times of every convolution and linear layer, forward and backward, and nothing
else. All arms draw the same batches and must reach the same weights: the last column is the relative difference of all weights after the first round. (Batch
statistics magnify rounding from step to step, so later rounds differ more.) All have fedtune's allocator settings, except *plain, untuned*, which has
the system's. What fedtune's bookkeeping costs is measured by itself, with the optimised loop's rounds and fedtune's in turn within one process: processes of
one program differ in speed by several per cent for as long as they live.
"""


def federation(
    model: str, side: int, channels: int, clients: int, steps: int, batch: int = 64, of: str = DIGITS
) -> tuple[dict[str, Any], int]:
    """Values of a FedAvg trial of which every client holds exactly one epoch of `steps` batches of the images `of`, and
    its test images (1 to 12.8)."""
    train = clients * steps * batch
    test = max(10, round(train / 12.8))
    return {
        "dataset": str(images.file(of, train, test, side, channels)),
        "model": model,
        "clients": clients,
        "partition": "iid",
        "validation_fraction": 0.0,
        "local_steps": steps,
        "batch_size": batch,
        "lr": 0.01,
        "rounds": 1000,
    }, test


#: Model, its title, side, channels, clients, steps, turns, and the speed-up over the plain loop that must be reached.
MODELS = (
    ("lenet5", "LeNet-5", 28, 1, 10, 20, 7, 1.12),
    ("cnn_narrow", "4-layer CNN (32-64-64-128, BatchNorm)", 32, 3, 2, 10, 5, 1.45),
    ("cnn", "DFRD's CNN (64-128-256-512, BatchNorm)", 32, 3, 2, 4, 3, None),
    ("resnet18", "ResNet-18", 32, 3, 2, 1, 3, None),
)
#: Those that are trained on real images too, in so many turns.
REAL, REAL_TURNS = ("lenet5", "cnn_narrow"), 3


def run(quick: bool) -> Case:
    case = Case("client_round", TITLE, TEXT, quick=quick)
    rows: list[list[Any]] = []
    there = images.kinds(case)
    planned = [(*one, of) for one in MODELS for of in (there if one[0] in REAL else there[:1])]
    for model, title, side, channels, clients, steps, turns, must, of in planned[:1] if quick else planned:
        values, test = federation(model, side, channels, 2 if quick else clients, 2 if quick else steps, of=of)
        arms, many = _arms(values, [channels, side, side], test, quick), turns if of == DIGITS else REAL_TURNS
        first, found, said = _measured(model, arms, 2 if quick else many, 0 if quick or must is None else 1)
        bookkeeping = 100 / ratio(*_beside(values, 3 if quick else 2 * many)) - 100
        rows += _rows(title, of, values, first, found, said)
        split = {
            key: statistics.median(s[key] for s in said["fedtune"]["split"][1:])
            for key in ("client", "server", "evaluation")
        }
        case.notes.append(
            f"{title}, {of}: of fedtune's round {split['client']:.3g} s are local training, {split['server']:.3g} s the "
            f"server, {split['evaluation']:.3g} s evaluation. Beside the optimised loop in one process it takes "
            f"{bookkeeping:.2g} % longer."
        )
        if must is not None and of == DIGITS and not quick:
            _goals(case, title, must, found, bookkeeping)
    heading = ("model", "images", "clients × steps × batch", "arm", "s/round", "speed-up over plain", "÷ kernels")
    case.table("Seconds per round", (*heading, "PSS, MiB", "differs by"), rows)
    return case


def _arms(values: dict[str, Any], shape: list[int], test: int, quick: bool) -> dict[str, Arm]:
    """What is compared, by name."""
    arms = {
        "plain, untuned": Arm("plain", {"values": values}, malloc=False),
        "plain": Arm("plain", {"values": values}),
        "optimised": Arm("optimised", {"values": values}),
        "fedtune": Arm("Rounds", {"method": "fedavg", "values": values}),
        "kernels": Arm("floor", {"values": values, "shape": shape, "clients": values["clients"], "test": test}),
    }
    return {name: arms[name] for name in ("plain", "optimised", "fedtune")} if quick else arms


def _measured(
    model: str, arms: dict[str, Arm], turns: int, drop: int
) -> tuple[dict[str, Any], dict[str, list[float]], dict[str, dict[str, Any]]]:
    """By arm: its model after the first round, its seconds per round, and what it says of itself at the end."""
    with Processes(f"client_round, {model}") as processes:
        for name, arm in arms.items():
            processes.start(name, arm)
        processes.ready()
        first = {}
        for name in arms:
            processes.run([name])
            first[name] = processes.describe(name).get("model")
        found = interleave(processes, {name: [name] for name in arms}, repeats=turns, drop=drop)
        return first, found, {name: processes.describe(name) for name in arms}


def _rows(
    title: str,
    of: str,
    values: dict[str, Any],
    first: dict[str, Any],
    found: dict[str, list[float]],
    said: dict[str, dict[str, Any]],
) -> list[list[Any]]:
    """A model's lines of the table, an arm each."""
    size = f"{values['clients']} × {values['local_steps']} × {values['batch_size']}"
    rows: list[list[Any]] = []
    for name, seconds in found.items():
        kernels = 1 / ratio(found["kernels"], seconds) if "kernels" in found else None
        differs = apart(first["plain"], first[name]) if first[name] else None
        speed = [statistics.median(seconds), ratio(found["plain"], seconds), kernels]
        rows.append(
            [*(["", "", ""] if rows else [title, of, size]), name, *speed, said[name]["memory"]["pss"], differs]
        )
    return rows


def _goals(case: Case, title: str, must: float, found: dict[str, list[float]], bookkeeping: float) -> None:
    """What must be reached for a model."""
    case.faster(f"{title}: round against the plain loop", must, found["plain"], found["fedtune"])
    case.faster(
        f"{title}: round against the plain loop with the system's allocator",
        must,
        found["plain, untuned"],
        found["fedtune"],
    )
    kernels = 1 / ratio(found["kernels"], found["fedtune"])
    case.goals += [
        Goal(f"{title}: bookkeeping over the optimised loop", 5.0, bookkeeping, least=False, unit=" %"),
        Goal(f"{title}: round against its kernels alone", 2.6, kernels, least=False, unit="×"),
    ]


def _beside(values: dict[str, Any], turns: int) -> tuple[list[float], list[float]]:
    """Seconds of the optimised loop's rounds and of fedtune's, in turn in one process; the first turn is left out."""
    with Processes("client_round, in one process") as processes:
        processes.start("both", Arm("Beside", {"values": values}))
        interleave(processes, {"both": ["both"]}, repeats=turns)
        seconds = processes.describe("both")["seconds"]
    return seconds["optimised"][1:], seconds["fedtune"][1:]
