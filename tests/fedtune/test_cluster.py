"""Joining a Ray: what happens beside it, and what its processes are told. (That they start outside the user's folder is an end-to-end test.)"""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from fedtune import cluster
from search_spaces.errors import UserError
from tests.fedtune.conftest import experiment


def test_work_is_done_beside_and_before_the_block(ray_cluster: None, tmp_path: Path) -> None:
    done: list[str] = []
    with cluster.joined(experiment(tmp_path / "run"), lambda: done.append(threading.current_thread().name)):
        assert done and done[0] != threading.main_thread().name
    import ray

    assert ray.is_initialized()  # it was joined, not started


def test_what_fails_beside_is_raised_here(ray_cluster: None, tmp_path: Path) -> None:
    def fail() -> None:
        raise UserError("The disk is full.")

    with pytest.raises(UserError, match="The disk is full"), cluster.joined(experiment(tmp_path / "run"), fail):
        raise AssertionError("entered all the same")


def test_more_gpus_than_the_cluster_has_are_refused(ray_cluster: None, tmp_path: Path) -> None:
    with (
        pytest.raises(UserError, match="gpus-per-trial must be at most 2, the GPUs of the cluster, got 3"),
        cluster.joined(experiment(tmp_path / "run", gpus_per_trial=3.0)),
    ):
        pass


def test_paths_hold_in_processes_that_start_elsewhere(ray_cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDTUNE_METHODS", os.pathsep.join(["mine.py", "/elsewhere/other.py"]))
    monkeypatch.setenv("FEDTUNE_CACHE", "cache")
    with cluster.joined(experiment(tmp_path / "run")):
        assert os.environ["FEDTUNE_METHODS"] == os.pathsep.join([str(tmp_path / "mine.py"), "/elsewhere/other.py"])
        assert os.environ["FEDTUNE_CACHE"] == str(tmp_path / "cache")
        assert Path.cwd() == tmp_path
