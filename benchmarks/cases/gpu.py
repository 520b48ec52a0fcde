"""Trials per GPU: LeNet-5 and the CNN with 1 to 16 trials on one GPU; loop, CUDA graphs and vmap."""

from __future__ import annotations

import statistics
import sys
from typing import Any

from benchmarks.cases.client_round import federation
from benchmarks.measure import Arm, Processes, interleave
from benchmarks.results import Case, Goal

TITLE = "On a GPU"
TEXT = """
FedAvg with ten clients of 20 steps of 64 on one GPU: n trials at once, each a process of its own with a share of 1/n of the memory, until all have done a
round. `auto` is vmap on a GPU where a step of the model is small, and recorded steps (graph) elsewhere; the last table is what decided that. Whether the
processes' kernels overlap depends on whether NVIDIA's MPS runs; a note below the tables says whether it did.
"""
#: Model, side and channels of its images, batch: the sizes of a step that are compared. Ten clients of ten steps each.
SIZES = (
    ("lenet_code", 28, 1, 64),
    ("lenet5", 28, 1, 256),
    ("cnn_small", 8, 1, 64),
    ("cnn", 8, 1, 64),
    ("cnn", 28, 1, 16),
    ("cnn_small", 28, 1, 64),
    ("resnet8", 32, 3, 16),
    ("resnet8", 32, 3, 64),
)


def run(quick: bool) -> Case | None:
    import torch

    if not torch.cuda.is_available():
        print(
            "There is no GPU here that PyTorch can use, so there is nothing to measure; run `make bench-gpu` on a "
            "machine with one.",
            file=sys.stderr,
        )
        return None
    case = Case("gpu", TITLE, TEXT, quick=quick)
    executors = ("loop", "graph", "vmap")
    counts = (1, 2) if quick else (1, 2, 4, 8, 16)
    for model, title, side, channels in (("lenet5", "LeNet-5", 28, 1), ("cnn", "DFRD's CNN", 32, 3))[
        : 1 if quick else 2
    ]:
        values, _ = federation(model, side, channels, 2 if quick else 10, 2 if quick else 20)
        found = [row for executor in executors for row in _trials(model, values, executor, counts, 2 if quick else 5)]
        add(case, title, torch.cuda.get_device_name(), found)
    sizes = SIZES[:1] if quick else SIZES
    by_size(case, torch.cuda.get_device_name(), [(size, _of_size(*size, quick)) for size in sizes])
    case.notes.append(
        "NVIDIA's MPS was running." if mps() else "NVIDIA's MPS was not running: the trials' kernels took turns."
    )
    return case


def add(case: Case, title: str, device: str, rows: list[list[Any]]) -> None:
    """A model's table; for LeNet-5, of which a GPU is idle most of the time, what must be reached."""
    columns = ("executor", "trials", "s until all have done a round", "rounds per hour", "times one trial")
    case.table(f"{title} on {device}", (*columns, "GPU memory per trial, MiB"), rows)
    rates = {(executor, trials): rate for executor, trials, _, rate, *_ in rows}
    if title == "LeNet-5" and ("vmap", 4) in rates:
        one = rates["graph", 1] / rates["loop", 1]
        case.goals.append(Goal(f"{title}, one trial on a GPU: recorded steps against the loop", 3.0, one, unit="×"))
        four = rates["vmap", 4] / rates["vmap", 1]
        case.goals.append(Goal(f"{title}: rounds per hour of 4 trials on one GPU against one", 2.0, four, unit="×"))


def _of_size(model: str, side: int, channels: int, batch: int, quick: bool) -> list[float]:
    """Seconds per round of one and of four trials at once, first with recorded steps, then stacked."""
    values, _ = federation(model, side, channels, 2 if quick else 10, 2 if quick else 10, batch)
    rows = [row for executor in ("graph", "vmap") for row in _trials(model, values, executor, (1, 4), 3)]
    return [row[2] for row in rows]


def by_size(case: Case, device: str, found: list[tuple[tuple[str, int, int, int], list[float]]]) -> None:
    """The table of what is the faster executor for steps of different sizes, and which `auto` takes."""
    from trainables import models
    from trainables.simulation import executors

    rows = []
    for (model, side, channels, batch), seconds in found:
        shape = (channels, side, side)
        size = executors.operations(models.build(model, shape, 10), shape, batch)
        chosen = "graph" if size >= executors.FILLS else "vmap"
        rows.append([model, f"{side} × {side} × {channels}", batch, size / 1e9, *seconds, chosen])
    rows.sort(key=lambda row: row[3])
    seconds_of = ("graph, 1 trial, s", "graph, 4, s", "vmap, 1, s", "vmap, 4, s")
    case.table(
        f"Steps of different sizes on {device}",
        ("model", "images", "batch", "10⁹ operations per forward pass", *seconds_of, "`auto`"),
        rows,
    )


def _trials(
    model: str, values: dict[str, Any], executor: str, counts: tuple[int, ...], repeats: int
) -> list[list[Any]]:
    """An executor's lines of the table, one for each number of trials at once."""
    from fedtune.machine import resources

    rows: list[list[Any]] = []
    single = None
    for n in counts:
        with Processes(f"gpu, {model}, {executor}, {n} trials") as processes:
            names = [f"trial {i}" for i in range(n)]
            for name in names:
                options = {"values": values | {"executor": executor}, "share": 1 / n}
                processes.start(name, Arm("gpu_rounds", options, threads=max(1, resources.cores() // n)))
            found = interleave(processes, {"all": names}, repeats=repeats)["all"]
            memory = max(processes.describe(name)["gpu_mib"] for name in names)
        rate = n / statistics.median(found)
        single = single or rate
        rows.append([executor, n, statistics.median(found), 3600 * rate, rate / single, memory])
    return rows


def mps() -> bool:
    """Whether an MPS control daemon runs here."""
    from pathlib import Path

    for entry in Path("/proc").glob("[0-9]*/comm"):
        try:
            if entry.read_text().startswith("nvidia-cuda-mps"):
                return True
        except OSError:
            continue
    return False
