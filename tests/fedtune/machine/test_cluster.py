"""Joining a Ray: what it must have, and what its processes are told. (That they start outside the user's folder is an
end-to-end test.)"""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from fedtune.machine import cluster
from fedtune.machine.servers import NotStarted
from search_spaces.errors import UserError


def test_a_ray_that_was_there_stays(ray_cluster: None) -> None:
    import ray

    with cluster.joined(None, trials=2, cpus=0.5, gpus=0.0):
        pass
    assert ray.is_initialized()


def test_more_gpus_than_the_cluster_has_are_refused(ray_cluster: None) -> None:
    with (
        pytest.raises(UserError, match="gpus-per-trial must be at most 2, the GPUs of the cluster, got 3"),
        cluster.joined(None, trials=2, cpus=0.5, gpus=3.0),
    ):
        pass


def test_paths_hold_in_processes_that_start_elsewhere(
    ray_cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDTUNE_METHODS", os.pathsep.join(["mine.py", "/elsewhere/other.py"]))
    monkeypatch.setenv("FEDTUNE_CACHE", "cache")
    with cluster.joined(None, trials=2, cpus=0.5, gpus=0.0):
        assert os.environ["FEDTUNE_METHODS"] == os.pathsep.join([str(tmp_path / "mine.py"), "/elsewhere/other.py"])
        assert os.environ["FEDTUNE_CACHE"] == str(tmp_path / "cache")
        assert Path.cwd() == tmp_path


REFUSALS = [
    RuntimeError("Failed to start GCS.\nLast 10 lines of its log: …"),
    ConnectionError("ray server is not available"),
    TimeoutError("The current node timed out during startup"),
    ValueError("The object store does not fit in /dev/shm."),
    OSError(28, "No space left on device"),
    RuntimeError(""),
]


@pytest.mark.parametrize("error", REFUSALS, ids=lambda error: type(error).__name__)
def test_a_ray_that_does_not_start_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    import ray

    def fails(**_: object) -> None:
        raise error

    monkeypatch.setattr(ray, "init", fails)
    monkeypatch.setattr(ray, "shutdown", lambda: None)  # the Ray of other tests stays
    with (
        pytest.raises(NotStarted, match="Ray did not start") as told,
        cluster.started(tmp_path, cores=1, with_gpus=False),
    ):
        pass
    [problem] = told.value.problems
    assert told.value.exit_code == 3 and "\n" not in problem and type(error).__name__ in problem
    assert problem.count("..") == 0 and "has free memory and room in /dev/shm" in problem


def test_sigterm_while_ray_starts_is_an_interrupt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray takes the signal from its start on and raises `SystemExit`; afterwards it is ours again."""
    import ray

    def starts(**_: object) -> None:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))

    def is_ended(**_: object) -> None:
        starts()
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(ray, "shutdown", lambda: None)  # the Ray of other tests stays
    before = signal.getsignal(signal.SIGTERM)
    for number, init in enumerate((starts, is_ended)):
        monkeypatch.setattr(ray, "init", init)
        (folder := tmp_path / str(number)).mkdir()
        ends = pytest.raises(KeyboardInterrupt) if init is is_ended else nullcontext()
        with ends, cluster.started(folder, cores=1, with_gpus=False):
            assert signal.getsignal(signal.SIGTERM) == before
        assert signal.getsignal(signal.SIGTERM) == before


def test_ray_still_decides_by_this_variable_where_it_listens() -> None:
    from ray._private import ray_constants, services

    assert "if not ray_constants.ENABLE_RAY_CLUSTER" in inspect.getsource(services.get_node_ip_address)
    before = ray_constants.ENABLE_RAY_CLUSTER
    with cluster._on_loopback():
        assert ray_constants.ENABLE_RAY_CLUSTER is False
    assert ray_constants.ENABLE_RAY_CLUSTER is before


#: Starts a Ray of our own whose GCS is killed as soon as it has started.
KILLED = """
from ray._private import ray_constants
from ray._private.node import Node

start = Node.start_gcs_server


def killed(self, *words, **options):
    start(self, *words, **options)
    self.all_processes[ray_constants.PROCESS_TYPE_GCS_SERVER][0].process.kill()


Node.start_gcs_server = killed

from fedtune.machine.cluster import started
from fedtune.machine.private_folder import private_folder
from fedtune.machine.servers import NotStarted

try:
    with private_folder() as folder, started(folder, cores=1, with_gpus=False):
        print("started")
except NotStarted as error:
    print(error)
"""


def test_a_server_that_is_killed_during_the_start_is_told() -> None:
    surroundings = {**os.environ, "RAY_NUM_REDIS_GET_RETRIES": "2"}  # Ray tries twice to reach it
    done = subprocess.run(
        [sys.executable, "-c", KILLED], env=surroundings, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Ray did not start (") and done.stdout.count("\n") == 1
