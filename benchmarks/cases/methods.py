"""Whole rounds of the four seed methods at their small profile on digits, against the same equations on plain
PyTorch."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.fingerprint import apart
from benchmarks.measure import Arm, Processes, interleave, ratio
from benchmarks.results import Case

TITLE = "Whole rounds of the seed methods, one thread"
TEXT = """
DFRD, FedKF, FedMD-CG and DHF with the small profile of their default space on digits. *Plain* is the same equations on plain PyTorch (contiguous
tensors, ReLU before pooling, default optimisers, teachers whose weights gather gradients, the system's allocator); both must reach the same models in
the first unit (relative difference of all weights; later, decisions that hang on rounding drive them apart). A unit is as many rounds as a method
needs for one of each kind: DHF trains its global model every fifth round.
"""
METHODS = {"dfrd": 1, "fedkf": 2, "fedmdcg": 1, "dhf": 5}


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
    for method, rounds in list(METHODS.items())[: 1 if quick else 4]:
        values = small(method)
        options = {"method": method, "values": values, "rounds": rounds}
        with Processes(f"methods, {method}") as processes:
            processes.start("plain", Arm("plain_rounds", options, malloc=False))
            processes.start("fedtune", Arm("rounds", options))
            first = {}
            for name in ("plain", "fedtune"):
                processes.run([name])
                first[name] = processes.describe(name)
            found = interleave(processes, {name: [name] for name in first}, repeats=1 if quick else 3, drop=0)
            said = {name: processes.describe(name) for name in found}
        for name, seconds in found.items():
            split = [
                statistics.mean(s[key] for s in said[name]["split"][rounds:])
                for key in ("client", "server", "evaluation")
            ]
            rows.append(
                [
                    method if name == "plain" else "",
                    name,
                    statistics.median(seconds) / rounds,
                    *split,
                    ratio(found["plain"], seconds),
                    said[name]["memory"]["pss"],
                    apart(first["plain"]["model"], first[name]["model"]) if first["plain"]["model"] else None,
                ]
            )
    case.table(
        "Seconds per round",
        (
            "method",
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
