"""How soon a search begins and ends, as a user's command, beside one process that simulates the same."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.cases.client_round import federation
from benchmarks.images import DIGITS, kinds
from benchmarks.measure import ROOT, environment, ratio, say
from benchmarks.results import Case, Goal

TITLE = "Start and end of a search"
TEXT = """
`fedtune search fedavg` with LeNet-5 (ten clients, 20 steps of 64), two trials of two rounds at once, from its first moment to the end of the first round
that any trial writes, and from the last round to the prompt. In turn with it, one Python process that imports the engine and simulates the first round of
one such trial: nothing that computes rounds is sooner. Ray's servers, its two processes for trials, the study and the report of the winner are what the
search has beside that.
"""
#: The first round of a trial, in a process that does nothing else.
BARE = """
import json, sys
from trainables.simulation.replicates import Replicates
from trainables.worker import process
process.set_threads(1)
Replicates("fedavg", json.loads(sys.argv[1]), (0,)).step()
"""


#: Seconds between two looks at what trials have written.
EVERY = 0.02


def searched(folder: Path, values: Mapping[str, object]) -> tuple[float, float]:
    """Seconds from the start of a search to its first round, and from its last round to its end."""
    words = ["--trials=2", "--rounds=2", "--slots=2", "--no-confirm", "--metric=test_global_accuracy"]
    words += [f"--dataset={values['dataset']}", f"--name={folder}"]
    words += [f"--set={key}={value}" for key, value in values.items() if key not in ("rounds", "dataset", "lr")]
    began = time.time()
    process = subprocess.Popen(
        [sys.executable, "-m", "fedtune", "search", "fedavg", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        env=environment(1, malloc=False),
    )
    first = None
    while process.poll() is None:
        if first is None and any(file.stat().st_size for file in folder.glob("trials/*/rounds.jsonl")):
            first = time.time()
        time.sleep(EVERY)
    ended = time.time()
    files = list(folder.glob("trials/*/rounds.jsonl"))
    if process.returncode or first is None or len(files) != 2:
        raise RuntimeError(f"the search ended with exit code {process.returncode} and rounds of {len(files)} trials")
    return first - began, ended - max(file.stat().st_mtime for file in files)


def bare(values: Mapping[str, object]) -> float:
    """Seconds of a process that simulates the first round of a trial."""
    began = time.time()
    given = json.dumps({**values, "rounds": 2})
    subprocess.run([sys.executable, "-c", BARE, given], check=True, cwd=ROOT, env=environment(1, malloc=False))
    return time.time() - began


def run(quick: bool) -> Case:
    case = Case("start", TITLE, TEXT, quick=quick)
    with tempfile.TemporaryDirectory(prefix="fedtune-bench-") as made:
        for of in kinds(case):
            _measure(case, Path(made), of, turns=1 if quick else 5)
    return case


def _measure(case: Case, folder: Path, of: str, turns: int) -> None:
    values, _ = federation("lenet5", 28, 1, 2 if case.quick else 10, 2 if case.quick else 20, of=of)
    alone, first, prompt = [], [], []
    for turn in range(turns + 1):
        one = bare(values)
        found = searched(folder / f"{of}-{turn}", values)
        say(f"  start, {of}: {turn} of {turns}: bare {one:.1f} s, search {found[0]:.1f} s, its end {found[1]:.2f} s")
        if turn:  # the first turn warms the disk's cache
            alone.append(one)
            first.append(found[0])
            prompt.append(found[1])
    case.table(
        f"Start and end, {of}",
        ("what", "s", "times bare"),
        [
            ["bare process, to its first round", statistics.median(alone), None],
            ["search, to its first round", statistics.median(first), 1 / ratio(alone, first)],
            ["search, from its last round to the prompt", statistics.median(prompt), None],
        ],
    )
    if of == DIGITS:
        case.goals += [
            Goal("Start of a search to its first round", 6.0, statistics.median(first), least=False, unit=" s"),
            Goal("Last round of a search to the prompt", 1.0, statistics.median(prompt), least=False, unit=" s"),
        ]
