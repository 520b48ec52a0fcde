"""Joining a Ray: what it must have and what its processes are told, and addresses where no cluster can be joined: one
sentence, soon, and nothing is created."""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from fedtune.api import doctor
from fedtune.api.extend import extend
from fedtune.api.resume import resume
from fedtune.api.search import carry_out
from fedtune.machine import cluster, fork_server, inspection
from fedtune.machine.cluster import Slots, cannot_join, check_address
from fedtune.machine.inspection import Inspector
from fedtune.options import Progress
from fedtune.planning.plan import Plan
from fedtune.record.provenance import versions
from search_spaces.errors import UserError
from tests.fedtune.conftest import experiment, space, start
from tests.unchanged import unchanged


def test_a_ray_that_was_there_stays(ray_cluster: None) -> None:
    import ray

    with cluster.joined(None, trials=2, cpus=0.5, gpus=0.0):
        pass
    assert ray.is_initialized()


def test_more_gpus_than_the_cluster_has_are_refused(ray_cluster: None) -> None:
    with (
        pytest.raises(UserError, match="gpus of a trial must be at most 2, the GPUs of the cluster, got 3"),
        cluster.joined(None, trials=2, cpus=0.5, gpus=3.0),
    ):
        pass


@pytest.mark.parametrize(("cpus", "gpus", "forks"), [(1.0, 0.0, True), (0.0, 0.0, False), (1.0, 0.5, False)])
def test_machines_of_a_cluster_have_fork_servers_where_trials_are_to_run_on_their_cores(
    monkeypatch: pytest.MonkeyPatch, cpus: float, gpus: float, forks: bool
) -> None:
    joined: list[object] = []

    @contextlib.contextmanager
    def connected(ray: object, address: str, found: object) -> Iterator[None]:
        joined.append(found)
        yield

    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr(cluster, "_connected", connected)
    monkeypatch.setattr(cluster, "_check_gpus", lambda ray, gpus: None)
    monkeypatch.setattr(fork_server, "elsewhere", lambda: "said to Ray")
    with cluster.joined("10.0.0.1:6379", trials=1, cpus=cpus, gpus=gpus):
        assert joined == ["said to Ray" if forks else None]


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


@pytest.fixture(autouse=True)
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process may share a Ray, and where there is one no address is looked at."""
    monkeypatch.setattr(cluster, "_is_joined", lambda: False)


@pytest.fixture
def silent() -> Iterator[str]:
    """Something listens here and never says a word."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(8)
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def refusing() -> str:
    """Nothing listens here."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def test_none_is_a_ray_of_our_own() -> None:
    check_address(None)


@pytest.mark.parametrize("given", ["local", "ray://127.0.0.1:10001", "somewhere", ":1", "host:0", "host:65536", "h:x"])
def test_what_is_no_address(given: str) -> None:
    with pytest.raises(UserError, match=r"^address must be the HOST:PORT at which .*, or auto, got .* \(--address\)"):
        check_address(given)


def test_where_nothing_listens(refusing: str) -> None:
    began = time.monotonic()
    with pytest.raises(UserError) as told:
        check_address(refusing)
    assert told.value.problems == (
        f"No Ray cluster answers at '{refusing}' (--address): Connection refused. Start one there with `ray start "
        f"--head`, or leave --address out to search on this machine alone.",
    )
    assert time.monotonic() - began < 30


def test_an_answer_that_was_asked_for_ahead_is_taken(refusing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that nobody takes is not waited for."""
    monkeypatch.setattr(cluster, "_connect", lambda address: None)
    monkeypatch.setattr(cluster, "_TRY", "import json, os; print(json.dumps([[os.getpid(), 0]]))")
    with cluster.ahead(refusing):
        asked = cluster._trying[refusing]
        assert [machine.cores for machine in cluster.machines(refusing)] == [asked.pid]
        with cluster.ahead(refusing):  # it has told within the last minute
            assert refusing not in cluster._trying
    monkeypatch.setattr(cluster, "_TRY", "import time; time.sleep(600)")
    monkeypatch.delitem(cluster._told, refusing)
    with cluster.ahead(refusing):
        asked = cluster._trying[refusing]
    assert asked.returncode == -signal.SIGKILL and not cluster._trying
    with cluster.ahead("no address"):
        assert not cluster._trying


def test_where_nothing_answers(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert 2 * cluster.CONNECT + cluster.JOIN <= 30
    monkeypatch.setattr(cluster, "JOIN", 3.0)
    with pytest.raises(UserError, match=rf"No Ray cluster answers at '{silent}' \(--address\): no answer within 3 s\."):
        check_address(silent)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "AuthenticationError: InvalidAuthToken: …",
            "asks for another token. Set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN",
        ),
        ("RuntimeError: No node info found matching", "This machine is not part of the Ray cluster at 'h:1'"),
        (
            "RuntimeError: Version mismatch:\n  Ray: 2.61.\n",
            "(--address): RuntimeError: Version mismatch: Ray: 2.61.",
        ),
    ],
)
def test_why_a_cluster_cannot_be_joined(said: str, told: str) -> None:
    found = cannot_join("h:1", said)
    assert told in found and "\n" not in found and found.endswith(".") and not found.endswith("..")


def test_nothing_is_created_or_written(tmp_path: Path, refusing: str) -> None:
    folder = tmp_path / "run"
    asked = experiment(folder, address=refusing)
    with pytest.raises(UserError, match="No Ray cluster answers"):
        carry_out(Plan(folder, asked, space(), {}, (), {}), Progress(quiet=True))
    assert list(tmp_path.iterdir()) == []
    start(folder)
    with unchanged(folder), pytest.raises(UserError, match="No Ray cluster answers"):
        resume(folder, address=refusing, quiet=True)
    with unchanged(folder), pytest.raises(UserError, match="No Ray cluster answers"):
        extend(folder, trials=1, address=refusing, quiet=True)


GPUS = Slots("a", "10.0.0.1", 64, 8, "H100", 32)


@pytest.mark.parametrize(
    ("slots", "gpus", "told"),
    [
        ([GPUS], 0.25, "32 trials at once: 32 on a (GPUs 0-7, 4 trials on each, H100)"),
        ([GPUS._replace(slots=8)], 1.0, "8 trials at once: 8 on a (GPUs 0-7, 1 trial on each, H100)"),
        ([GPUS._replace(slots=2)], 4.0, "2 trials at once: 2 on a (GPUs 0-7, 4 for each trial, H100)"),
        ([GPUS._replace(gpus=1, gpu="", slots=1)], 1.0, "1 trial at once: 1 on a (GPU 0, 1 trial on it)"),
        ([GPUS._replace(slots=64)], 0.0, "64 trials at once: 64 on a"),
        (
            [GPUS, GPUS._replace(host="b"), Slots("c", "10.0.0.3", 16, 0, "", 0)],
            0.25,
            "64 trials at once: 64 on a and b (GPUs 0-7, 4 trials on each, H100), 0 on c (no GPU)",
        ),
        (
            [GPUS._replace(host=host, slots=64) for host in "abcd"],
            0.0,
            "256 trials at once: 256 on 4 machines (a … d)",
        ),
    ],
)
def test_the_map_of_slots_in_words(slots: list[Slots], gpus: float, told: str) -> None:
    assert cluster.told(slots, gpus) == f"There is room for {told}."


def test_the_map_says_of_each_kind_how_many_trials_a_card_has() -> None:
    """A kind that was not measured has the usual part of a GPU."""
    slots = [GPUS, Slots("b", "10.0.0.2", 16, 2, "T4", 4), Slots("c", "10.0.0.3", 16, 1, "", 1)]
    assert cluster.told(slots, 1.0, {"H100": 0.25, "T4": 0.5}) == (
        "There is room for 37 trials at once: 32 on a (GPUs 0-7, 4 trials on each, H100), 4 on b (GPUs 0-1, 2 trials "
        "on each, T4), 1 on c (GPU 0, 1 trial on it)."
    )


def test_how_late_a_clock_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is 7 s ahead; its first answer took a process's start, and was given at its end."""
    now, takes = [100.0], iter((30.0, 0.2, 0.4))
    monkeypatch.setattr(doctor.time, "time", lambda: now[0])

    def clock() -> float:
        now[0] += next(takes)
        return now[0] + 7

    assert doctor._late(clock) == pytest.approx(7.1)


def test_a_file_that_another_machine_does_not_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("seen")
    assert Inspector().reads(str(tmp_path / "token"), "seen")
    monkeypatch.setattr(inspection, "SHARED", 0.3)
    assert not Inspector().reads(str(tmp_path / "token"), "other") and not Inspector().reads(str(tmp_path / "x"), "")


#: What a process does that Ray starts on a machine where fedtune is not installed.
STRANGER = """
import sys
sys.modules.update(dict.fromkeys(("fedtune", "search_spaces"), None))
from ray import cloudpickle
print(cloudpickle.loads(sys.stdin.buffer.read())().versions(["numpy", "no-such-package"]))
"""


def test_a_machine_without_fedtune_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards code of ours that Ray does not take along: `fedtune doctor` would say that the machine starts nothing."""
    import numpy
    import ray

    sent = mock.Mock()
    monkeypatch.setattr(ray, "remote", sent)
    cluster.inspector(cluster.Node("gpu-a", "10.0.0.1", cluster.Machine(32, 2), "H100", "0" * 56))
    (inspector,) = sent.call_args.args
    done = subprocess.run(
        [sys.executable, "-c", STRANGER], input=ray.cloudpickle.dumps(inspector), capture_output=True, check=True
    )
    assert done.stdout.decode().strip() == str({"python": platform.python_version(), "numpy": numpy.__version__})


@pytest.mark.parametrize("alike", [True, False])
def test_what_is_said_of_a_machine(alike: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cores, GPUs, memory, versions, clock, data and runs are named, whether they are as here or not."""
    import ray

    ours, folder = versions(), tmp_path / "runs"
    monkeypatch.setenv("FEDTUNE_DATA", "/data")
    monkeypatch.setattr(ray, "get", lambda answer, timeout: answer)
    inspector = mock.Mock()
    inspector.versions.remote.return_value = ours if alike else {**ours, "torch": "1.0"}
    inspector.clock.remote.side_effect = lambda: time.time() + (0.0 if alike else 7.0)
    inspector.memory.remote.return_value = (64.0, 32.0)
    inspector.gpus.remote.return_value = ["NVIDIA H100, 81559 MiB"] * 2
    inspector.reads.remote.return_value = alike
    inspector.sees.remote.return_value = ["/data"] if alike else []
    node = cluster.Node("gpu-a", "10.0.0.1", cluster.Machine(32, 2), "H100", "0")
    found = doctor._node(node, inspector, (str(folder / ".session"), ""))
    same = [f"{name} {ours[name]}" for name in ("fedtune", "numpy", "torch", "ray", "python")]
    begins = "10.0.0.1: 32 cores, 2 GPUs (NVIDIA H100, 81559 MiB), 32.0 of 64.0 GiB of memory free, as here "
    assert found.name == "gpu-a" and found.text.startswith(begins)
    rest = found.text.removeprefix(begins)
    if alike:
        assert found.state == "ok"
        assert rest == f"{', '.join(same)}, its clock is as here, sees the data in /data, sees the runs in {folder}"
    else:
        assert found.state == "problem"
        known = ", ".join(one for one in same if not one.startswith("torch"))
        assert rest == (
            f"{known}, its clock is 7.0 s ahead, has no data in /data yet, sends home what its trials write, as it "
            f"does not see {folder}, torch 1.0, here {ours['torch']}"
        )
