"""Whole rounds of the four seed methods at their small profile on digits and on real images, against the same equations
on plain PyTorch."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.fingerprint import apart
from benchmarks.images import AS_DIGITS, DIGITS, FASHION, file, kinds
from benchmarks.measure import Arm, Processes, interleave, ratio
from benchmarks.results import Case

TITLE = "Whole rounds of the seed methods, one thread"
TEXT = """
DFRD, FedKF, FedMD-CG and DHF with the small profile of their default space, on digits (8×8) and on as many images of Fashion-MNIST (28×28). *Plain* is
the same equations on plain PyTorch, as a paper's release has them: contiguous tensors, ReLU before pooling, default optimisers, PyTorch's own operations,
teachers one after the other for one step at a time, whose weights gather gradients, the system's allocator. Both must reach the same models in the
first unit (relative difference of all weights; later, decisions that hang on rounding drive them apart). A unit is as many rounds as a method
needs for one of each kind: DHF trains its global model every fifth round.
"""
#: The rounds of a unit, and how many times faster than plain it must be on digits.
METHODS = {"dfrd": (1, 1.6), "fedkf": (2, 1.5), "fedmdcg": (1, 1.5), "dhf": (5, 1.15)}


def small(method: str) -> dict[str, Any]:
    """The values of the method's small profile, planned for more rounds than will be run."""
    from search_spaces import presets
    from trainables.registry import declared

    space = presets.load(method, "default", declared(method))
    profile = {key: value for key, value in space.profiles["small"].items() if key in declared(method)}
    return {**space.fix, **profile, "rounds": 1000}


def run(quick: bool) -> Case:
    case = Case("methods", TITLE, TEXT, quick=quick)
    rows = []
    there = kinds(case)
    for method, (rounds, must) in list(METHODS.items())[: 1 if quick else 4]:
        for of in there:
            values = small(method) | ({"dataset": str(file(of, *AS_DIGITS))} if of == FASHION else {})
            found, lines = _measured(method, of, values, rounds, 1 if quick else 3 if of == DIGITS else 2)
            rows += lines
            if of == DIGITS:
                case.faster(f"{method}, whole rounds on digits against plain PyTorch", must, *found)
    case.table(
        "Seconds per round",
        (
            "method",
            "images",
            "arm",
            "s/round",
            "clients",
            "server",
            "evaluation",
            "speed-up over plain",
            "PSS, MiB",
            "differs by",
        ),
        rows,
    )
    case.notes.append("FedMD-CG has no global model, so there is nothing to compare its end by.")
    return case


def _measured(
    method: str, title: str, values: dict[str, Any], rounds: int, turns: int
) -> tuple[tuple[list[float], list[float]], list[list[Any]]]:
    """Seconds of the units of both arms, and their lines of the table."""
    options = {"method": method, "values": values, "rounds": rounds}
    with Processes(f"methods, {method}, {title}") as processes:
        processes.start("plain", Arm("PlainRounds", options, malloc=False))
        processes.start("fedtune", Arm("Rounds", options))
        first = {}
        for name in ("plain", "fedtune"):
            processes.run([name])
            first[name] = processes.describe(name)
        found = interleave(processes, {name: [name] for name in first}, repeats=turns, drop=0)
        said = {name: processes.describe(name) for name in found}
    lines = []
    for name, seconds in found.items():
        split = [
            statistics.mean(s[key] for s in said[name]["split"][rounds:]) for key in ("client", "server", "evaluation")
        ]
        lines.append(
            [
                method if name == "plain" else "",
                title if name == "plain" else "",
                name,
                statistics.median(seconds) / rounds,
                *split,
                ratio(found["plain"], seconds),
                said[name]["memory"]["pss"],
                apart(first["plain"]["model"], first[name]["model"]) if first["plain"]["model"] else None,
            ]
        )
    return (found["plain"], found["fedtune"]), lines
