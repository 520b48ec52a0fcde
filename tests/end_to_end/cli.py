"""The real command line on a toy data set, in processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

#: A round of milliseconds.
SMALL = ("--set", "clients=3", "--set", "partition=iid", "--set", "local_steps=2", "--set", "model=lenet5")


def fedtune(*words: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fedtune", *map(str, words)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )


def search(toy: Path, cwd: Path, name: str, *words: object) -> subprocess.CompletedProcess[str]:
    return fedtune("search", "fedavg", "--dataset", toy, *SMALL, "--name", name, *words, cwd=cwd)


def background(toy: Path, cwd: Path, name: str, *words: object) -> subprocess.Popen[str]:
    return started("search", "fedavg", "--dataset", toy, *SMALL, "--name", name, *words, cwd=cwd)


def started(*words: object, cwd: Path) -> subprocess.Popen[str]:
    """A command that runs beside the test, in a group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "fedtune", *map(str, words)],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )


def wait_for_rounds(folder: Path, rounds: int, process: subprocess.Popen[str], limit: float = 180) -> None:
    """Until the run has so many rows."""
    deadline = time.monotonic() + limit
    while sum(len(path.read_text().splitlines()) for path in folder.glob("trials/*/rounds.jsonl")) < rounds:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "the search does not get going"
        time.sleep(0.05)
