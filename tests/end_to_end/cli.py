"""The real command line on a toy data set, in processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tests import forked

#: A round of milliseconds.
SMALL = ("--set", "clients=3", "--set", "partition=iid", "--set", "local_steps=2", "--set", "model=lenet5")


def fedtune(*words: object, cwd: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    return forked.run(["-m", "fedtune", *map(str, words)], cwd=cwd, settings=settings, timeout=400)


def anew(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A command that Python starts anew, for what `tests/forked.py` cannot do."""
    command = [sys.executable, "-m", "fedtune", *map(str, words)]
    settings = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=400, check=False, env=settings)


def searching(toy: Path, name: str, *words: object) -> tuple[object, ...]:
    """The words of a search."""
    return ("search", "fedavg", "--dataset", toy, *SMALL, "--name", name, *words)


def search(toy: Path, cwd: Path, name: str, *words: object) -> subprocess.CompletedProcess[str]:
    return fedtune(*searching(toy, name, *words), cwd=cwd)


def background(toy: Path, cwd: Path, name: str, *words: object) -> forked.Process:
    return started(*searching(toy, name, *words), cwd=cwd)


def started(*words: object, cwd: Path) -> forked.Process:
    """A command that runs beside the test, in a group of its own."""
    return forked.Process(["-m", "fedtune", *map(str, words)], cwd=cwd)


def wait_for_rounds(folder: Path, rounds: int, process: forked.Process, limit: float = 180) -> None:
    """Until the run has so many rows."""
    deadline = time.monotonic() + limit
    while sum(len(path.read_text().splitlines()) for path in folder.glob("trials/*/rounds.jsonl")) < rounds:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "the search does not get going"
        time.sleep(0.05)
