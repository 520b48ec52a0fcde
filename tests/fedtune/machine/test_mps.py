"""NVIDIA's MPS beside a search, with stand-ins for NVIDIA's two commands on PATH."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedtune.execution.driver import _Driver
from fedtune.machine import cluster, mps, private_ray

#: A daemon is a process that sleeps; the commands that it was given stand in a file.
CONTROL = """#!/bin/sh
echo "$*" >> {asked}
case "$1" in
  -d) sleep 600 >/dev/null 2>&1 & echo $! > "$CUDA_MPS_PIPE_DIRECTORY/pid"; exit {code};;
  *) cat >> {asked}; kill "$(cat "$CUDA_MPS_PIPE_DIRECTORY/pid")";;
esac
"""
SMI = """#!/bin/sh
case "$1" in
  *compute-apps*) printf '{apps}';;
  *) printf '{cards}';;
esac
exit {code}
"""


class Machine:
    """What NVIDIA's commands do here."""

    def __init__(self, folder: Path) -> None:
        self.bin, self.asked = folder / "bin", folder / "asked"
        self.bin.mkdir()
        self.control()
        self.smi()

    def control(self, code: int = 0) -> None:
        self._write("nvidia-cuda-mps-control", CONTROL.format(asked=self.asked, code=code))

    def smi(self, cards: str = "[N/A], Default\\n", apps: str = "", code: int = 0) -> None:
        self._write("nvidia-smi", SMI.format(cards=cards, apps=apps, code=code))

    def _write(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def commands(self) -> list[str]:
        return self.asked.read_text().splitlines() if self.asked.exists() else []


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    monkeypatch.setenv("PATH", f"{made.bin}:/usr/bin:/bin")
    monkeypatch.delenv(mps.PIPES, raising=False)
    monkeypatch.setattr(mps, "running", lambda: False)
    return made


def lives(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def wait_until_gone(pid: int) -> None:
    for _ in range(100):
        if not lives(pid):
            return
        time.sleep(0.05)
    pytest.fail(f"process {pid} still runs")


def test_it_runs_in_the_search_s_folder_and_ends_with_the_block(machine: Machine, tmp_path: Path) -> None:
    with mps.beside(tmp_path, 0.25) as told:
        assert told == "NVIDIA's MPS runs for this search, so that trials on one GPU compute at the same time."
        assert os.environ[mps.PIPES] == str(tmp_path / "mps" / "pipe")
        assert os.environ[mps.LOGS] == str(tmp_path / "mps" / "log")
        pid = int((tmp_path / "mps" / "pipe" / "pid").read_text())
        assert lives(pid)
    assert mps.PIPES not in os.environ and mps.LOGS not in os.environ
    assert machine.commands() == ["-d", "", "quit -t 5"]
    wait_until_gone(pid)


@pytest.mark.parametrize("gpus", [0.0, 1.0, 2.0])
def test_where_no_gpu_is_shared_nothing_is_asked_or_told(gpus: float, machine: Machine, tmp_path: Path) -> None:
    with mps.beside(tmp_path, gpus) as told:
        assert told is None
    assert not machine.commands() and not (tmp_path / "mps").exists()


@pytest.mark.parametrize(
    ("why", "expected"),
    [
        ("variable", "NVIDIA's MPS is left as it was set up, as the variable CUDA_MPS_PIPE_DIRECTORY is set."),
        ("missing", "as NVIDIA's MPS is not installed (nvidia-cuda-mps-control is not on PATH)."),
        ("running", "NVIDIA's MPS runs already and is left as it was set up."),
        ("divided", "as a GPU here is divided (MIG)."),
        ("exclusive", "as another process has a GPU for itself."),
        ("silent", "as nvidia-smi did not answer"),
    ],
)
def test_it_is_not_started_where_it_may_not_be(
    why: str, expected: str, machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why == "variable":
        monkeypatch.setenv(mps.PIPES, "/theirs")
    elif why == "missing":
        (machine.bin / "nvidia-cuda-mps-control").unlink()
    elif why == "running":
        monkeypatch.setattr(mps, "running", lambda: True)
    elif why == "divided":
        machine.smi(cards="Disabled, Default\\nEnabled, Default\\n")
    elif why == "exclusive":
        machine.smi(cards="[N/A], Exclusive_Process\\n", apps="4711\\n")
    else:
        machine.smi(code=9)
    before = os.environ.get(mps.PIPES)
    with mps.beside(tmp_path, 0.5) as told:
        assert told is not None and expected in told and os.environ.get(mps.PIPES) == before
    assert not machine.commands()


@pytest.mark.parametrize(("cards", "apps"), [("[N/A], Exclusive_Process\\n", ""), ("Disabled, Default\\n", "4711\\n")])
def test_a_gpu_that_is_free_or_shared_by_all_is_used(cards: str, apps: str, machine: Machine, tmp_path: Path) -> None:
    machine.smi(cards, apps)
    with mps.beside(tmp_path, 0.5) as told:
        assert told is not None and told.startswith("NVIDIA's MPS runs for this search")


def test_a_daemon_that_does_not_start_is_told_and_trials_run_without(machine: Machine, tmp_path: Path) -> None:
    machine.control(code=3)
    with mps.beside(tmp_path, 0.5) as told:
        expected = "as NVIDIA's MPS did not start (nvidia-cuda-mps-control ended with 3)."
        assert told == f"Trials take turns on a GPU, {expected}" and mps.PIPES not in os.environ
    mps.end(tmp_path)  # the stand-in's process


def test_the_daemon_of_a_killed_search_is_ended_by_the_next(machine: Machine, tmp_path: Path) -> None:
    code = (
        "import os\nfrom fedtune.machine import mps\nfrom fedtune.machine.private_ray import private_folder\n"
        "mps.running = lambda: False\n"
        "with private_folder() as folder, mps.beside(folder, 0.5): print(folder, flush=True); os._exit(9)"
    )
    (place := tmp_path / "place").mkdir()
    variables = os.environ | {"RAY_TMPDIR": str(place), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=variables, stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 9
    left = Path(done.stdout.strip())
    pid = int((left / "mps" / "pipe" / "pid").read_text())
    assert lives(pid)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", str(place))
        with private_ray.private_folder():
            assert not left.exists()
    wait_until_gone(pid)


def test_a_ray_of_our_own_starts_with_it_and_it_is_told(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray's processes find the daemon by the variables that hold when Ray starts."""
    seen: list[str | None] = []

    @contextlib.contextmanager
    def started(folder: Path, **how: Any) -> Iterator[None]:
        seen.append(os.environ.get(mps.PIPES))
        yield

    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr(cluster, "started", started)
    told: list[str] = []
    with cluster.joined(None, trials=2, cpus=1.0, gpus=0.5, tell=told.append) as folder:
        assert seen == [str(folder / "mps" / "pipe")]
    assert told == ["NVIDIA's MPS runs for this search, so that trials on one GPU compute at the same time."]
    with cluster.joined(None, trials=2, cpus=1.0, gpus=0.0, tell=told.append):
        assert seen[1] is None and len(told) == 1


def test_the_driver_prints_it_and_every_run_records_it_once(tmp_path: Path) -> None:
    (tmp_path / "provenance.json").write_text('{"kind": "search"}')
    printed: list[str] = []
    watch, queue = SimpleNamespace(say=printed.append), SimpleNamespace(parts=[SimpleNamespace(folder=tmp_path)])
    driver = _Driver(tmp_path, "fedtune resume", None, contextlib.ExitStack())
    for text in ("one way", "one way", "another"):
        driver._tell_mps(text, queue, watch)  # type: ignore[arg-type]
    assert printed == ["one way", "one way", "another"]
    recorded = json.loads((tmp_path / "provenance.json").read_text())
    assert recorded == {"kind": "search", "mps": ["one way", "another"]}
