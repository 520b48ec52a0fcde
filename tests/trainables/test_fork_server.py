"""Trials in forks of a loaded process: the same numbers, and no fork outlives who asked for it."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from fedtune.decisions.early_stopping import Never
from tests.fedtune.fake import Fake
from trainables import fork_server
from trainables.fork_server import ForkDied, ForkedTrial
from trainables.simulated_trial import HostedTrials
from trainables.tune import Trial
from trainables.worker.environment import Environment
from trainables.worker.job import Job
from trainables.worker.rounds_jsonl import read_rows


@pytest.fixture(scope="module")
def forks() -> Iterator[str]:
    with tempfile.TemporaryDirectory(dir="/tmp") as name, fork_server.started(Path(name)):
        address = fork_server.socket_in(Path(name))
        assert address is not None
        yield address


def job(folder: Path, *, forks: str | None = None, simulate: Any = Fake, threads: int = 1, **values: Any) -> Job:
    given = {"rounds": 4, "alpha": 0.3, "lambda": 0.7, **values} if simulate else values
    return Job(
        0,
        str(folder),
        "fedavg",
        given,
        (0, 1),
        ("val_global_accuracy",),
        (1,),
        Never(),
        threads=threads,
        environment=Environment(forks=forks),
        simulate=simulate,
    )


def ended(trial: Any) -> Any:
    while not (result := trial.step())["done"]:
        pass
    return result["ending"]


def soon(true: Callable[[], bool]) -> bool:
    """Whether it comes true within half a minute."""
    deadline = time.monotonic() + 30
    while not true() and time.monotonic() < deadline:
        time.sleep(0.05)
    return true()


def gone(pid: int) -> bool:
    """Whether a process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def children(pid: int) -> list[int]:
    """The processes that this one forked, of those that live."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(one) for one in found]


def server_of(folder: Path) -> int:
    """The process of the server that listens in `folder`."""
    asked = subprocess.run(["pgrep", "-f", "from trainables.fork_server"], capture_output=True, text=True, check=True)
    here = [pid for pid in asked.stdout.split() if os.readlink(f"/proc/{pid}/cwd") == str(folder)]
    return min(int(pid) for pid in here)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_fork_gives_the_bits_that_a_process_of_its_own_gives(tmp_path: Path, forks: str, threads: int) -> None:
    values = {"rounds": 2, "clients": 3, "local_steps": 2, "model": "lenet5", "dataset": "digits"}
    before = torch.get_num_threads()
    found = []
    for name, trial in (
        ("fork", ForkedTrial(forks, pickle.dumps)),
        ("here", HostedTrials(lambda *asked: None)),
    ):
        trial.begin(job(tmp_path / name, simulate=None, threads=threads, **values), False)
        ending = ended(trial)
        trial.release()
        assert (ending.stop_reason, ending.round) == ("completed", 2), ending.error
        rows = read_rows(tmp_path / name / "rounds.jsonl")
        found.append([{key: value for key, value in row.items() if not key.startswith("seconds")} for row in rows])
    torch.set_num_threads(before)
    assert len(found[0]) == 4 and found[0] == found[1]


def test_one_fork_simulates_one_trial_after_another(tmp_path: Path, forks: str) -> None:
    trial = ForkedTrial(forks, pickle.dumps)
    for name in ("first", "second"):
        trial.begin(job(tmp_path / name), False)
        assert ended(trial).stop_reason == "completed"
    (fork,) = children(server_of(Path(forks).parent))
    trial.release()
    assert soon(lambda: gone(fork))


def test_what_a_trial_raises_is_its_outcome_and_not_the_end_of_the_fork(tmp_path: Path, forks: str) -> None:
    trial = ForkedTrial(forks, pickle.dumps)
    trial.begin(job(tmp_path / "bad", trouble="raise"), False)
    ending = ended(trial)
    assert (ending.stop_reason, ending.round) == ("error", 1) and "boom" in ending.error
    trial.begin(job(tmp_path / "good"), False)
    assert ended(trial).stop_reason == "completed"
    trial.release()


def test_a_fork_that_dies_is_told_and_the_trial_goes_on_in_another(tmp_path: Path, forks: str) -> None:
    values = {"trouble": "die", "flag": str(tmp_path / "flag")}
    trial = ForkedTrial(forks, pickle.dumps)
    trial.begin(job(tmp_path / "t", **values), False)
    with pytest.raises(ForkDied):
        ended(trial)
    with pytest.raises(ForkDied):
        trial.step()
    trial.release()
    again = ForkedTrial(forks, pickle.dumps)
    again.begin(job(tmp_path / "t", **values), False)
    assert ended(again).round == 4
    again.release()
    whole = ForkedTrial(forks, pickle.dumps)
    whole.begin(job(tmp_path / "whole"), False)
    ended(whole)
    whole.release()
    keys = ("round", "seed", "val_global_accuracy")
    rows = [[[row[key] for key in keys] for row in read_rows(tmp_path / n / "rounds.jsonl")] for n in ("t", "whole")]
    assert rows[0] == rows[1]


def test_a_fork_ends_in_the_middle_of_a_round_with_who_asked_for_it(tmp_path: Path, forks: str) -> None:
    asking = os.fork()
    if not asking:  # as a process of Ray, which is killed
        trial = ForkedTrial(forks, pickle.dumps)
        trial.begin(job(tmp_path / "t", sleep=600), False)
        trial.step()
        os._exit(0)
    server = server_of(Path(forks).parent)
    assert soon(lambda: (tmp_path / "t" / "partition.json").exists())
    (fork,) = children(server)
    os.kill(asking, signal.SIGKILL)
    os.waitpid(asking, 0)
    assert soon(lambda: gone(fork)) and not (tmp_path / "t" / "rounds.jsonl").read_text()


def test_a_killed_server_takes_its_forks_along_and_trials_run_in_rays_processes(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name, fork_server.started(Path(name)):
        address = fork_server.socket_in(Path(name))
        assert address is not None
        trial = Trial({"job": job(tmp_path / "before", forks=address)})
        assert trial.step()["values"] is not None and trial._note is None
        server = server_of(Path(name))
        (fork,) = children(server)
        os.kill(server, signal.SIGKILL)
        assert soon(lambda: gone(fork))
        with pytest.raises(ForkDied):
            trial.step()
        trial.cleanup()
        instead = Trial({"job": job(tmp_path / "before", forks=address)})
        result = instead.step()
        assert "cannot be reached" in result["note"] and result["round"] == 2
        assert ended(instead).stop_reason == "completed"


def test_a_server_ends_with_who_started_it(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        starting = os.fork()
        if not starting:
            with fork_server.started(Path(name)):
                time.sleep(600)
        assert soon(lambda: fork_server.socket_in(Path(name)) is not None)
        trial = ForkedTrial(str(Path(name) / fork_server.SOCKET), pickle.dumps)
        trial.begin(job(tmp_path / "t"), False)
        server = server_of(Path(name))
        (fork,) = children(server)
        os.kill(starting, signal.SIGKILL)
        os.waitpid(starting, 0)
        assert soon(lambda: gone(server) and gone(fork))
