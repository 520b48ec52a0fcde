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

from benchmarks.cases.client_round import federation
from benchmarks.cases.search import search
from benchmarks.images import DIGITS, kinds
from benchmarks.measure import ROOT, environment, say
from benchmarks.ray_process import CALLS
from benchmarks.results import Case, Goal

TITLE = "Trials, reports and memory of a search"
TEXT = """
What one more trial and one more report take within a search that computes nothing, one trial at a time; and the memory of a search that computes.
Of a process that imports PyTorch itself, most is PyTorch, as the first row shows: a build with CUDA's libraries takes twice the memory of one
without, whether or not there is a GPU. A worker is a process of Ray and its fork, which shares what the fork server has imported.
"""
#: Imports PyTorch and says what it takes.
ALONE = "import torch; from benchmarks.worker import memory; print(memory()['pss'])"


def slopes(case: Case, folder: Path, quick: bool) -> None:
    """Seconds per further trial and per report, each within one search that computes nothing."""
    first, trials, rounds = (2, 6, 55) if quick else (10, 60, 510)

    def apart(title: str, n: int, rounds: int) -> tuple[float, dict[str, Any]]:
        diary = folder / f"{title}.jsonl"
        found = search(
            f"search, {title}",
            folder,
            diary=str(diary),
            options={"trials": n, "rounds": rounds, "slots": 1, "name": title},
        )
        ends = [
            when
            for what, when, _ in map(json.loads, diary.read_text().splitlines())
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


def token(case: Case, quick: bool) -> None:
    """What Ray's token takes, with it and without by turns: Ray's start, more calls of a trial's process than a search
    of a few trials makes, and Ray's end. A whole search would say less: the seconds that its processes take to import
    PyTorch differ from one to the next by more than the token takes. On a machine that does other things as well,
    the processor's time says more than the clock."""
    turns, parts = (
        1 if quick else 15,
        {"start": "Ray's start", "calls": f"{CALLS} calls of an actor", "end": "Ray's end"},
    )
    found: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    for turn in range(turns + 1):
        for unguarded in (False, True) if turn % 2 else (True, False):
            say(f"  Ray {'without' if unguarded else 'with'} a token, {turn} of {turns}")
            seconds = _ray(unguarded)
            if turn:  # the first turn warms the disk's cache
                found[unguarded].append(seconds | {"all": sum(seconds[part] for part in parts)})
    rows, differences = [], {}
    for part, name in (parts | {"all": "together", "processor": "the processor's time of start and calls"}).items():
        guarded, bare = ([one[part] for one in found[unguarded]] for unguarded in (False, True))
        apart = [1000 * (one - other) for one, other in zip(guarded, bare, strict=True)]
        rows.append([name, 1000 * statistics.median(guarded), 1000 * statistics.median(bare), statistics.median(apart)])
        differences[part] = apart
    case.table("Ray's token", ("what", "with a token, ms", "without, ms", f"median of {turns} differences, ms"), rows)
    for part, name in (("all", "Ray's token, per search"), ("processor", "Ray's token, the processor's time")):
        apart = differences[part]
        goal = Goal(name, 200.0, statistics.median(apart), least=False, unit=" ms")
        case.goals.append(dataclasses.replace(goal, spread=(min(apart), max(apart))))


def _ray(unguarded: bool) -> dict[str, float]:
    """Seconds of one Ray's start, calls and end; see `benchmarks.ray_process`."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.ray_process"],
        input=json.dumps({"unguarded": unguarded}) + "\n",
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env=environment(1, malloc=False),
        timeout=300,
    )
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def memory(case: Case, folder: Path, of: str, quick: bool) -> None:
    """Memory of a search of real federations with LeNet-5."""
    values, _ = federation("lenet5", 28, 1, 2 if quick else 10, 2 if quick else 20, of=of)
    fixed = {
        key: value
        for key, value in values.items()
        if key not in ("rounds", "dataset", "local_steps", "batch_size", "lr")
    }
    found = search(
        f"search, memory, {of}",
        folder,
        real=True,
        memory=True,
        options={
            "trials": 2,
            "rounds": 1 if quick else 4,
            "slots": 2,
            "dataset": values["dataset"],
            "set": fixed | {"local_steps": values["local_steps"]},
            "metric": "test_global_accuracy",
            "name": f"memory-{of}",
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
        f"Memory of a search with LeNet-5, {of}, two trials at once (largest proportional set size)",
        ("process", "MiB"),
        [
            ["a process that has imported PyTorch", alone],
            ["a worker with its trial", sizes["worker"]],
            ["driver", sizes["driver"]],
            ["Ray's servers and idle workers", sizes["ray"]],
            ["all", sizes["all"]],
        ],
    )
    if of == DIGITS:
        case.goals.append(Goal("One worker with LeNet-5", 250.0, sizes["worker"], least=False, unit=" MiB"))


def run(quick: bool) -> Case:
    case = Case("reports", TITLE, TEXT, quick=quick)
    with tempfile.TemporaryDirectory(prefix="fedtune-bench-") as made:
        slopes(case, Path(made), quick)
        token(case, quick)
        for of in kinds(case):
            memory(case, Path(made), of, quick)
    return case
