"""Cost against clients, against model width and against trials; memory per trial."""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.cases.client_round import federation
from benchmarks.cases.search import search
from benchmarks.images import DIGITS, MOST, kinds, npz
from benchmarks.measure import Arm, Processes, interleave
from benchmarks.results import Case

TITLE = "Scaling"
TEXT = """
One trial on one thread with more and more clients (LeNet-5, five steps of 64 each; the data grows with them, and Fashion-MNIST has enough for a hundred), with sub-models of falling width (the
DFRD's CNN; HeteroFL with one width for all clients), and searches with more and more trials (stand-ins that compute nothing, two at once, by the
default sampler `ei`, by TPE and at random). Memory is one process's proportional set size.
"""


def run(quick: bool) -> Case:
    case = Case("scaling", TITLE, TEXT, quick=quick)
    for of in kinds(case):
        clients(case, of, quick)
    widths(case, quick)
    trials(case, quick)
    return case


def clients(case: Case, of: str, quick: bool) -> None:
    """10 to 200 clients, as far as there are images; seconds split into local training, server and evaluation."""
    rows, steps, batch = [], 1 if quick else 5, 64
    for count in (2, 4) if quick else (10, 20, 50, 100, 200):
        if of != DIGITS and count * steps * batch > MOST:
            continue
        values, _ = federation("lenet5", 28, 1, count, steps, batch, of)
        with Processes(f"scaling, {count} clients, {of}") as processes:
            processes.start("fedtune", Arm("Rounds", {"method": "fedavg", "values": values}))
            found = interleave(processes, {"fedtune": ["fedtune"]}, repeats=2 if quick else 3)["fedtune"]
            said = processes.describe("fedtune")
        split = [statistics.median(s[key] for s in said["split"][1:]) for key in ("client", "server", "evaluation")]
        rows.append(
            [count, statistics.median(found), *split, 1000 * statistics.median(found) / count, said["memory"]["pss"]]
        )
    columns = ("clients", "s/round", "training", "server", "evaluation", "ms per client", "PSS, MiB")
    case.table(f"Clients, {of}", columns, rows)
    if of != DIGITS:
        return
    case.curve(
        "Seconds per round against clients",
        "clients",
        "s",
        {
            "whole round": [(row[0], row[1]) for row in rows],
            "server": [(row[0], max(row[3], 1e-5)) for row in rows],
            "evaluation": [(row[0], row[4]) for row in rows],
        },
    )


def widths(case: Case, quick: bool) -> None:
    """Sub-models of width (1/2)^sigma."""
    rows = []
    values = {
        "dataset": str(npz(512, 64, 32, 3)),
        "model": "cnn",
        "clients": 2,
        "partition": "iid",
        "validation_fraction": 0.0,
        "local_steps": 2,
        "batch_size": 16 if quick else 64,
        "rounds": 1000,
    }
    with Processes("scaling, width") as processes:
        lanes = {}
        for exponent in (0, 2) if quick else (0, 1, 2, 3, 4):
            name = f"width {0.5**exponent:g}"
            # Every client's exponent is min(sigma, floor(rho i/N)), so that a large rho gives sigma to all.
            narrow = {"rho": 100, "sigma": exponent} if exponent else {}
            processes.start(name, Arm("Rounds", {"method": "heterofl", "values": values | narrow}))
            lanes[name] = [name]
        found = interleave(processes, lanes, repeats=2 if quick else 3)
        said = {name: processes.describe(name) for name in lanes}
    training = {name: statistics.median(s["client"] for s in said[name]["split"][1:]) for name in lanes}
    first = next(iter(training.values()))
    rows = [
        [
            float(name.split()[1]),
            statistics.median(found[name]),
            training[name],
            training[name] / first,
            said[name]["memory"]["pss"],
        ]
        for name in lanes
    ]
    case.table("Width of DFRD's CNN", ("width", "s/round", "training", "of the full width's", "PSS, MiB"), rows)
    case.curve(
        "Seconds of local training against width", "width", "s", {"training": [(row[0], row[2]) for row in rows]}
    )


def trials(case: Case, quick: bool) -> None:
    """When the n-th trial of one search had ended, and the search's memory."""
    rows: list[list[Any]] = []
    series: dict[str, list[tuple[float, float]]] = {}
    # Models to the end; random ones, which cost nothing to propose, only as far as needed to tell them apart.
    far = (10, 30, 100, 300, 1000)
    plan = {"random": (2, 6)} if quick else {"ei": far, "tpe": far, "random": far[:-1]}
    with tempfile.TemporaryDirectory(prefix="fedtune-bench-") as made:
        for sampler, marks in plan.items():
            diary = Path(made) / f"{sampler}.jsonl"
            found = search(
                f"scaling, {marks[-1]} trials, {sampler}",
                Path(made),
                memory=True,
                diary=str(diary),
                options={
                    "trials": marks[-1],
                    "rounds": 1,
                    "slots": 2,
                    "sampler": sampler,
                    "name": f"scaling-{sampler}",
                },
            )
            notes = [json.loads(line) for line in diary.read_text().splitlines()]
            begin = min(when for what, when, _ in notes if what == "begin")
            ends = sorted(when for what, when, _ in notes if what == "end")
            series[sampler] = [(n, max(ends[n - 1] - begin, 1e-3)) for n in marks]
            before = (0, begin)
            for n in marks:
                rows.append([sampler, n, ends[n - 1] - begin, 1000 * (ends[n - 1] - before[1]) / (n - before[0])])
                before = (n, ends[n - 1])
            case.notes.append(
                f"Memory of the search with {marks[-1]} trials and {sampler}: driver "
                f"{found['memory']['driver']:.0f} MiB, largest worker "
                f"{found['memory']['worker']:.0f} MiB, all processes {found['memory']['all']:.0f} MiB."
            )
    case.table(
        "Trials that compute nothing, two at once",
        ("sampler", "trials", "s since the first began", "ms per trial since the row above"),
        rows,
    )
    case.curve("Seconds until the n-th trial had ended", "trials", "s", series)
