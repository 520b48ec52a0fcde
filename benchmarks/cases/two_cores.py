"""Two trials side by side against one, with one thread each or two: what packing is worth on two cores."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.cases.client_round import federation
from benchmarks.images import DIGITS, kinds
from benchmarks.measure import Arm, Processes, interleave
from benchmarks.results import Case, Goal

TITLE = "Packing on two cores"
TEXT = """
The LeNet-5 round of above as one trial or two, with one thread each or two. Two trials with two threads each are what happens on two cores where
nobody sets the threads. The plain loop runs once, on one thread. All of it on digits and on as many images of Fashion-MNIST.
"""
#: What takes turns, and the processes of each; "2a" is a trial with two threads.
LANES = {
    "plain loop": ["plain"],
    "1 trial × 1 thread": ["1a"],
    "1 trial × 2 threads": ["2a"],
    "2 trials × 1 thread": ["1a", "1b"],
}


def run(quick: bool) -> Case:
    case = Case("two_cores", TITLE, TEXT, quick=quick)
    for of in kinds(case):
        values, _ = federation("lenet5", 28, 1, 2 if quick else 10, 2 if quick else 20, of=of)
        found = _measured(of, values, quick)
        _table(case, of, found)
        if of == DIGITS:
            _goals(case, found)
    return case


def _measured(of: str, values: dict[str, Any], quick: bool) -> dict[str, list[float]]:
    """Seconds of every way of using the cores."""
    trial = {"method": "fedavg", "values": values}
    with Processes(f"two_cores, {of}") as processes:
        for threads in (1, 2):
            for place in "ab":
                processes.start(f"{threads}{place}", Arm("Rounds", trial, threads=threads))
        processes.start("plain", Arm("plain", {"values": values}))
        found = interleave(processes, LANES, repeats=2 if quick else 8 if of == DIGITS else 4)
        return found | interleave(processes, {"2 trials × 2 threads": ["2a", "2b"]}, repeats=1 if quick else 2)


def _table(case: Case, of: str, found: dict[str, list[float]]) -> None:
    """Rounds per second."""
    many = {name: len(LANES.get(name, "ab")) for name in found}
    alone = statistics.median(found["1 trial × 1 thread"])
    case.table(
        f"Rounds of LeNet-5 on two cores, {of}",
        ("how", "s until all have done a round", "rounds per second", "times 1 × 1"),
        [
            [
                name,
                statistics.median(seconds),
                many[name] / statistics.median(seconds),
                many[name] * alone / statistics.median(seconds),
            ]
            for name, seconds in found.items()
        ],
    )


def _goals(case: Case, found: dict[str, list[float]]) -> None:
    """What two packed trials must reach."""
    pair = [s / 2 for s in found["2 trials × 1 thread"]]
    case.faster(
        "Two 1-thread trials against one 2-thread trial, trials per hour", 1.2, found["1 trial × 2 threads"], pair
    )
    case.faster(
        "Two packed trials against the plain 1-thread loop with fedtune's allocator settings",
        2.0,
        found["plain loop"],
        pair,
    )
    doubled = [100 * a / (2 * b) for a, b in zip(found["1 trial × 1 thread"], pair, strict=True)]
    case.goals.insert(
        0,
        Goal(
            "Two 1-thread trials against twice one such trial",
            95.0,
            statistics.median(doubled),
            unit=" %",
            spread=(min(doubled), max(doubled)),
        ),
    )
