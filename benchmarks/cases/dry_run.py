"""How long `--dry-run` takes, as a user's command, however long the rounds are that it tells of."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.images import DIGITS, FASHION, file, kinds
from benchmarks.measure import ROOT, environment, say
from benchmarks.results import Case, Goal

TITLE = "Dry runs"
TEXT = """
`fedtune search … --dry-run` from its first moment to the prompt: Python's imports, the plan with its federation, and what a round of it costs here. Papers'
settings on Fashion-MNIST, whose rounds take from half a minute to many, and 5,000 images of 28×28 that are a user's own, with the model that is taken where
none is named. Beside it, what it says of a round.
"""
#: Seconds that a dry run may take, whatever it tells of.
MOST = 10.0
#: The words of each after `fedtune search`; `OWN` stands for the file of 5,000 images.
OWN = "OWN"
SEARCHES = (
    ("dfrd", "--space", "omega", "--paper", "--dataset", "fmnist"),
    ("dfrd", "--space", "omega", "--paper", "--dataset", "fmnist32"),
    ("dhf", "--paper", "--dataset", "fmnist"),
    ("fedkf", "--paper", "--dataset", "fmnist"),
    ("fedavg", "--dataset", OWN),
    ("dfrd", "--dataset", OWN),
)


def dry_run(words: Sequence[str], folder: Path) -> tuple[float, float]:
    """Seconds of the command, and of a round as it says."""
    began = time.time()
    done = subprocess.run(
        [sys.executable, "-m", "fedtune", "search", *words, "--dry-run", "--json", f"--name={folder / 'none'}"],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment(1, malloc=False),
    )
    return time.time() - began, float(json.loads(done.stdout)["round_seconds"])


def run(quick: bool) -> Case | None:
    case = Case("dry_run", TITLE, TEXT, quick=quick)
    if FASHION not in kinds(case) and not quick:
        print("Dry runs are measured on Fashion-MNIST, which is not on this machine: `make data`.", file=sys.stderr)
        return None
    rows: list[list[Any]] = []
    with tempfile.TemporaryDirectory(prefix="fedtune-bench-") as made:
        own = str(file(DIGITS, 200, 40) if quick else file(FASHION, 5_000, 1_000))
        for words in [("fedavg", "--dataset", OWN)] if quick else SEARCHES:
            asked = [own if word == OWN else word for word in words]
            found = [dry_run(asked, Path(made)) for _ in range(1 if quick else 4)][0 if quick else 1 :]
            seconds = [took for took, _ in found]  # the first one warmed the disk's cache
            named = " ".join("own images" if word == OWN else word for word in words)
            say(f"  dry run, {named}: {statistics.median(seconds):.1f} s")
            told = statistics.median(round_ for _, round_ in found)
            rows.append([named, statistics.median(seconds), max(seconds), told])
    case.table("Dry runs", ("fedtune search", "s", "most, s", "a round, as it says, s"), rows)
    longest = max(row[1] for row in rows)
    case.goals.append(Goal("A dry run, the longest of these", MOST, longest, least=False, unit=" s"))
    return case
