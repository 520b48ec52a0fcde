"""Joining a Ray: what it must have, and what its processes are told. (That they start outside the user's folder is an
end-to-end test.)"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fedtune.machine import cluster
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
