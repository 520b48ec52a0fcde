"""How soon a search begins and ends, as a user's command, beside one process that simulates the same."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.cases.client_round import federation
from benchmarks.images import DIGITS, file, kinds
from benchmarks.measure import ROOT, environment, ratio, say
from benchmarks.results import Case, Goal

TITLE = "Start and end of a search"
TEXT = """
`fedtune search fedavg` with LeNet-5 (ten clients, 20 steps of 64), two trials of two rounds at once, from its first moment to the end of the first round
that any trial writes, and from the last round to the prompt. In turn with it, one Python process that imports the engine and simulates the first round of
one such trial: nothing that computes rounds is sooner. Ray's servers, its two processes for trials, the study and the report of the winner are what the
search has beside that. And a first search on images of one's own: `fedtune search fedavg --dataset own28.npz --trials 6 --rounds 3` with 5,000 images of
28×28, all else as it comes.
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
#: Training and test images of a user's own.
OWN = 4_000, 1_000


class Searched(NamedTuple):
    """Seconds from the start of a search to its first round and to the end of a first trial, and from its last round to
    its end."""

    first: float
    trial: float
    prompt: float


def fixed(values: Mapping[str, object]) -> list[str]:
    """What a search of two trials of two rounds of this federation is told."""
    words = ["--slots=2", "--no-confirm", "--metric=test_global_accuracy", f"--dataset={values['dataset']}"]
    return words + [f"--set={key}={value}" for key, value in values.items() if key not in ("rounds", "dataset", "lr")]


def searched(folder: Path, trials: int, rounds: int, words: Sequence[str]) -> Searched:
    """Times a search of FedAvg that is told these words besides."""
    words = [f"--trials={trials}", f"--rounds={rounds}", f"--name={folder}", *words]
    began = time.time()
    process = subprocess.Popen(
        [sys.executable, "-m", "fedtune", "search", "fedavg", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        env=environment(1, malloc=False),
    )
    first = trial = None
    while process.poll() is None:
        if trial is None:
            most = max((one.read_bytes().count(b"\n") for one in folder.glob("trials/*/rounds.jsonl")), default=0)
            first = time.time() if first is None and most else first
            trial = time.time() if most == rounds else None
        time.sleep(EVERY)
    ended = time.time()
    written = list(folder.glob("trials/*/rounds.jsonl"))
    if process.returncode or first is None or trial is None or len(written) != trials:
        raise RuntimeError(f"the search ended with exit code {process.returncode} and rounds of {len(written)} trials")
    return Searched(first - began, trial - began, ended - max(one.stat().st_mtime for one in written))


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
            size = (2, 1) if quick else (6, 3)
            words = [f"--dataset={file(of, *OWN)}"]
            own = [searched(Path(made) / f"own-{of}-{turn}", *size, words) for turn in range(1 if quick else 3)]
            found = statistics.median(one.trial for one in own)
            say(f"  start, {of}: the first trial on images of one's own ends after {found:.1f} s")
            case.goals.append(Goal(f"First trial on 5,000 own images, {of}", 60.0, found, least=False, unit=" s"))
    return case


def _measure(case: Case, folder: Path, of: str, turns: int) -> None:
    values, _ = federation("lenet5", 28, 1, 2 if case.quick else 10, 2 if case.quick else 20, of=of)
    alone, first, prompt = [], [], []
    for turn in range(turns + 1):
        one = bare(values)
        found = searched(folder / f"{of}-{turn}", 2, 2, fixed(values))
        say(
            f"  start, {of}: {turn} of {turns}: bare {one:.1f} s, search {found.first:.1f} s, its end {found.prompt:.2f} s"
        )
        if turn:  # the first turn warms the disk's cache
            alone.append(one)
            first.append(found.first)
            prompt.append(found.prompt)
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
