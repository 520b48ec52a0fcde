"""What one more trial, one more report and Ray's token cost, and what a search's processes hold in memory."""

from __future__ import annotations

import dataclasses
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.benchmarks.cases.client_round import federation
from tests.benchmarks.cases.search import search
from tests.benchmarks.measure import ROOT, environment
from tests.benchmarks.results import Case, Goal

TITLE = "Trials, reports and memory of a search"
TEXT = """
What one more trial and one more report take within a search that computes nothing, one trial at a time; and the memory of a search that computes.
Most of a worker is PyTorch itself, as the first row shows: a build with CUDA's libraries takes twice the memory of one
without, whether or not there is a GPU. (The same worker with the build of 2.13.0 without CUDA: 364 MiB.)
"""
#: Imports PyTorch and says what it takes.
ALONE = "import torch; from tests.benchmarks.worker import memory; print(memory()['pss'])"


def slopes(case: Case, folder: Path, quick: bool) -> None:
    """Seconds per further trial and per report, each within one search that computes nothing."""
    first, trials, rounds = (2, 6, 55) if quick else (10, 60, 510)

    def apart(title: str, n: int, rounds: int) -> tuple[float, dict[str, Any]]:
        diary = folder / f"{title}.jsonl"
        found = search(
            f"search, {title}",
            folder,
            diary=str(diary),
            options={"trials": n, "rounds": rounds, "concurrency": 1, "name": title},
        )
        ends = [
            when
            for what, when in map(json.loads, diary.read_text().splitlines())
            if what == "end" or (n == 1 and what == "round")
        ]
        return (ends[-1] - ends[first - 1]) / (len(ends) - first), found

    per_trial, many = apart(f"{trials}-trials", trials, 1)
    per_report, long = apart(f"{rounds}-reports", 1, rounds)
    case.table(
        "Searches that compute nothing, one trial at a time",
        ("what", "ms"),
        [
            ["per further trial", 1000 * per_trial],
            ["per report", 1000 * per_report],
            ["Ray's start", 1000 * statistics.median(f["init"] for f in (many, long))],
            ["Ray's end", 1000 * statistics.median(f["shutdown"] for f in (many, long))],
        ],
    )
    case.goals += [
        Goal("Per further trial", 0.3, per_trial, least=False, unit=" s"),
        Goal("Per report", 5.0, 1000 * per_report, least=False, unit=" ms"),
    ]


def token(case: Case, folder: Path, quick: bool) -> None:
    """What Ray's token takes: whole searches of one trial that computes nothing, with it and without, by turns."""
    turns, seconds = 1 if quick else 7, {False: list[float](), True: list[float]()}
    for turn in range(turns + 1):
        for unguarded in (False, True) if turn % 2 else (True, False):
            name = f"{'without' if unguarded else 'with'}-token-{turn}"
            options = {"trials": 1, "rounds": 1, "concurrency": 1, "name": name}
            found = search(f"search, {name}", folder, unguarded=unguarded, options=options)
            if turn:  # the first turn warms the disk's cache
                seconds[unguarded].append(found["seconds"])
    apart = [guarded - bare for guarded, bare in zip(seconds[False], seconds[True], strict=True)]
    case.table(
        "A search of one trial that computes nothing, with Ray's token and without",
        ("what", "s"),
        [
            ["with a token", statistics.median(seconds[False])],
            ["without", statistics.median(seconds[True])],
            [f"the token, median of {turns} pairs", statistics.median(apart)],
        ],
    )
    goal = Goal("Ray's token, per search", 0.2, statistics.median(apart), least=False, unit=" s")
    case.goals.append(dataclasses.replace(goal, spread=(min(apart), max(apart))))


def memory(case: Case, folder: Path, quick: bool) -> None:
    """Memory of a search of real federations with LeNet-5."""
    values, _ = federation("lenet5", 28, 1, 2 if quick else 10, 2 if quick else 20)
    fixed = {
        key: value
        for key, value in values.items()
        if key not in ("rounds", "dataset", "local_steps", "batch_size", "lr")
    }
    found = search(
        "search, memory",
        folder,
        real=True,
        memory=True,
        options={
            "trials": 2,
            "rounds": 1 if quick else 4,
            "concurrency": 2,
            "dataset": values["dataset"],
            "set": fixed | {"local_steps": values["local_steps"]},
            "select_on": "test",
            "name": "memory",
        },
    )
    sizes = found["memory"]
    alone = float(
        subprocess.run(
            [sys.executable, "-c", ALONE],
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
            env=environment(1, malloc=False),
        ).stdout
    )
    case.table(
        "Memory of a search with LeNet-5, two trials at once (largest proportional set size)",
        ("process", "MiB"),
        [
            ["a process that has imported PyTorch", alone],
            ["a worker with its trial", sizes["worker"]],
            ["driver", sizes["driver"]],
            ["Ray's servers and idle workers", sizes["ray"]],
            ["all", sizes["all"]],
        ],
    )
    case.goals.append(Goal("One worker with LeNet-5", 450.0, sizes["worker"], least=False, unit=" MiB"))


def run(quick: bool) -> Case:
    case = Case("reports", TITLE, TEXT, quick=quick)
    with tempfile.TemporaryDirectory(prefix="fedtune-bench-") as made:
        slopes(case, Path(made), quick)
        token(case, Path(made), quick)
        memory(case, Path(made), quick)
    return case
