"""A server of Ray that is killed under a search over methods, signals while Ray starts, and a worker that is killed:
what is said, and that the run can go on. (Servers killed under a search, at any moment, are faults: `tests/faults`.)"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedtune.machine.private_ray import chosen_place, leftovers
from search_spaces import run_folder
from tests import forked
from tests.end_to_end.cli import SMALL, background, fedtune, search, searching, started, wait_for_rounds
from tests.end_to_end.test_loopback import command_line, family
from tests.faults import processes
from tests.faults.processes import named
from tests.fedtune.conftest import frozen

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads Linux' /proc")

METRIC = ("--metric", "global_loss", "--seed", 1)
#: A trial that is still running when its processes have been looked up.
LONG = ("--trials", 1, "--rounds", 150, *METRIC)


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For temporary files, in which no other search has any; short, as sockets lie in it."""
    with tempfile.TemporaryDirectory(prefix="ft", dir="/tmp", ignore_cleanup_errors=True) as folder:
        monkeypatch.setenv("RAY_TMPDIR", folder)
        yield


def below(process: forked.Process | subprocess.Popen[str], word: str) -> list[int]:
    """Processes of a search whose program has `word` in its path."""
    return [pid for pid in family(process.pid) if word in command_line(pid).partition("\0")[0]]


def test_a_server_that_dies_ends_a_search_over_methods(toy: Path, tmp_path: Path) -> None:
    """Its Ray stays from one step to the next, and is left when the sentence is already known."""
    folder = tmp_path / "runs" / "cut"
    budget = ("--budget", "160rounds", "--rounds", 12, "--fresh-seeds", 1, "--final-seeds", 1)
    words = ("--methods", "fedavg,fedprox", "--dataset", toy, *SMALL, *budget, "--name", "cut")
    process = started("auto", *words, cwd=tmp_path)
    wait_for_rounds(folder / run_folder.SEARCHES / "fedavg", 4, process)
    (pid,) = below(process, "/gcs/gcs_server")
    os.kill(pid, signal.SIGKILL)
    # Ray itself ends a process a minute after the death, and says nothing of the run.
    out, err = process.communicate(timeout=55)
    assert process.returncode == 3 and out == "", err
    assert err.splitlines()[-1] == (
        f"Ray's GCS died, and nothing runs without it. The search stopped and keeps what was written; no trial was "
        f"scored by this. Go on with `fedtune resume {folder}`."
    )
    assert "Traceback" not in err and "(raylet)" not in err
    assert fedtune("resume", folder, cwd=tmp_path).returncode == 0
    assert not list(folder.rglob(".session-*")) and not leftovers(chosen_place())


@pytest.mark.usefixtures("hang_up")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_ray_starts_ends_the_search(toy: Path, tmp_path: Path, number: signal.Signals) -> None:
    folder = tmp_path / "runs" / "cut"
    words = searching(toy, "cut", "--trials", 1000, "--rounds", 20)
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [sys.executable, "-m", "fedtune", *map(str, words)],
        cwd=tmp_path,
        stdout=pipe,
        stderr=pipe,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not below(process, "/gcs/gcs_server"):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    assert not below(process, "/raylet/raylet"), "Ray has started already"
    (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, (out, err)
    assert "Interrupted. Go on with: fedtune resume runs/cut" in out and "Traceback" not in err
    status = json.loads(fedtune("status", folder, "--json", cwd=tmp_path).stdout)
    assert status["state"] == "resumable" and status["done"] == status["failed"] == 0
    assert not leftovers(chosen_place())


def test_a_killed_worker_is_told_with_its_round(toy: Path, tmp_path: Path) -> None:
    assert search(toy, tmp_path, "whole", *LONG).returncode == 0
    folder = tmp_path / "runs" / "cut"
    process = background(toy, tmp_path, "cut", *LONG)
    wait_for_rounds(folder, 3, process)
    rows = folder / "trials" / "0000" / "rounds.jsonl"
    workers = named(process.pid, "worker")
    (server,) = named(process.pid, "fork server")
    assert workers and set(workers) <= set(processes.below(server))
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)  # so that its rounds can be counted
    reached = len(rows.read_text().splitlines())
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert f"Trial 0 stopped after round {reached}, as the process died; it goes on from its last checkpoint" in err
    assert "(raylet)" not in out + err
    assert frozen(folder) == frozen(tmp_path / "runs" / "whole")
