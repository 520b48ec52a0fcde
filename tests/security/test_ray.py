"""Who can talk to a Ray of our own: nobody without its token, though every user of the machine can reach it. And the
user's own token opens a cluster that the user names.

The other process here is one of the same user, to whom the file system keeps nothing private; it is refused for want of
the token alone."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fedtune.machine.private_ray import TOKEN
from tests.end_to_end.cli import anew, searching
from tests.end_to_end.test_loopback import LISTEN, family

pytestmark = pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="reads Linux' /proc")

#: The victim: a search's Ray. Its address and folder are printed first, then for every line read how many machines it
#: has.
OURS = """
import sys, ray
from fedtune.machine.private_ray import private_folder, started
with private_folder() as folder, started(folder, cores=2, with_gpus=False):
    print(ray.get_runtime_context().gcs_address, folder, flush=True)
    for line in sys.stdin:
        print(sum(node["Alive"] for node in ray.nodes()), flush=True)
"""
#: Asks the server of the cluster's state, and then joins and runs a task, as the other process can.
ASK = """
import sys
from ray._raylet import GcsClient
print("said", GcsClient(address=sys.argv[1]).internal_kv_get(b"session_name", b"session", timeout=10))
"""
JOIN = """
import pathlib, sys, ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
ray.get(ray.remote(num_cpus=0.1)(lambda path: pathlib.Path(path).touch()).remote(sys.argv[2]), timeout=60)
"""
#: Adds a machine of one's own, to which the victim's tasks would come.
ADD = """
import sys, time
from ray._private.node import Node
from ray._private.parameter import RayParams
mine = RayParams(gcs_address=sys.argv[1], node_ip_address="127.0.0.1", num_cpus=1, temp_dir=sys.argv[2])
Node(mine, head=False, shutdown_at_exit=False, spawn_reaper=True)
time.sleep(600)
"""


@dataclass
class Ours:
    """A Ray as a search starts it, in a process of its own: Ray reads its settings once for a process, and that of the
    tests may have another one."""

    process: subprocess.Popen[str]
    address: str
    folder: Path
    token: str

    def machines(self) -> int:
        """That belong to the cluster."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


@pytest.fixture(scope="module")
def ours() -> Iterator[Ours]:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", OURS], env=clean(), stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        address, folder = process.stdout.readline().split()
        yield Ours(process, address, Path(folder), (Path(folder) / TOKEN).read_text())
        process.communicate(timeout=60)


def other(code: str, *words: object, **settings: str) -> subprocess.CompletedProcess[str]:
    """Another process, with these of Ray's settings and no others."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        env=clean() | settings,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def clean() -> dict[str, str]:
    """The environment without Ray's settings; it takes 127.0.0.1 for what it is, and gives up soon."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return others | {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_NUM_REDIS_GET_RETRIES": "2"}


def short() -> tempfile.TemporaryDirectory[str]:
    """A place for sockets."""
    return tempfile.TemporaryDirectory(prefix="ft", dir="/tmp", ignore_cleanup_errors=True)


WITHOUT = [{"RAY_AUTH_MODE": "disabled"}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": 64 * "0"}]


@pytest.mark.guard("who may enter a cluster")
@pytest.mark.parametrize("settings", WITHOUT, ids=["no token", "another token"])
def test_nobody_without_the_token_gets_an_answer(ours: Ours, tmp_path: Path, settings: dict[str, str]) -> None:
    asked = other(ASK, ours.address, **settings)
    assert asked.returncode != 0 and "InvalidAuthToken" in asked.stderr and "said" not in asked.stdout
    joined = other(JOIN, ours.address, tmp_path / "ran", **settings)
    assert joined.returncode != 0 and "InvalidAuthToken" in joined.stderr and not (tmp_path / "ran").exists()
    with short() as place:
        added = other(ADD, ours.address, place, **settings)
    assert added.returncode != 0 and "InvalidAuthToken" in added.stdout + added.stderr and ours.machines() == 1


@pytest.mark.guard("who may enter a cluster")
def test_with_the_token_the_same_attempts_succeed(ours: Ours, tmp_path: Path) -> None:
    right = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": ours.token}
    assert "said b'session_" in other(ASK, ours.address, **right).stdout
    assert other(JOIN, ours.address, tmp_path / "ran", **right).returncode == 0 and (tmp_path / "ran").exists()
    with short() as place:
        added = subprocess.Popen([sys.executable, "-c", ADD, ours.address, place], env=clean() | right)
        try:
            deadline = time.monotonic() + 120
            while ours.machines() < 2:
                assert added.poll() is None and time.monotonic() < deadline
                time.sleep(0.5)
        finally:
            for pid in family(added.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            added.wait()


def ports(pid: int) -> set[int]:
    """Ports that a process and those below it listen at."""
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    by_inode = {row[9]: int(row[1].split(":")[1], 16) for row in rows if row[3] == LISTEN}
    found = set()
    for process in family(pid):
        links = [os.readlink(path) for path in Path(f"/proc/{process}/fd").iterdir() if path.is_symlink()]
        found |= {by_inode[link[8:-1]] for link in links if link.startswith("socket:[") and link[8:-1] in by_inode}
    return found


def test_no_port_answers_a_browser_or_a_script(ours: Ours) -> None:
    """Ray's agents take commands over HTTP as well."""
    answers = {}
    for port in ports(ours.process.pid):
        for method, path in (("GET", "/"), ("POST", "/api/job_agent/jobs/"), ("POST", "/get_or_create_runtime_env")):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            try:
                connection.request(method, path, '{"entrypoint": "id"}', {"Content-Type": "application/json"})
                answers[port, path] = connection.getresponse().status
            except (http.client.HTTPException, OSError):
                answers[port, path] = 0  # it does not speak HTTP
    assert set(answers.values()) == {0, 401}


def test_the_folder_is_closed_to_others(ours: Ours) -> None:
    """Ray lets everybody write to the folder it is given, which therefore lies in another one."""
    assert stat.S_IMODE(ours.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((ours.folder / TOKEN).stat().st_mode) == 0o600
    assert list((ours.folder / "r").glob("session_*/sockets/raylet"))


def test_a_cluster_that_is_named_is_shown_the_user_s_token(
    ours: Ours, toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # it listens on the loopback device
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    asked = ("named", "--trials", 1, "--rounds", 1, "--address", ours.address)
    monkeypatch.setenv("RAY_AUTH_TOKEN", 64 * "0")
    refused = anew(*searching(toy, *asked), cwd=tmp_path)
    assert refused.returncode == 2 and refused.stderr == (
        f"The Ray cluster at '{ours.address}' (--address) asks for another token. Set RAY_AUTH_MODE=token, and "
        f"RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH to the token that it was started with.\n"
    )
    assert not (tmp_path / "runs").exists()
    monkeypatch.setenv("RAY_AUTH_TOKEN", ours.token)
    done = anew(*searching(toy, *asked), cwd=tmp_path)
    assert done.returncode == 0 and "1 trials done" in done.stdout, done.stderr


@pytest.mark.guard("who may enter a cluster")
def test_no_other_cluster_is_joined(ours: Ours, toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one that RAY_ADDRESS names, nor one that Ray's own file names, nor one that runs beside it."""
    noted = tmp_path / "ray" / "ray_current_cluster"
    noted.parent.mkdir()
    noted.write_text("127.0.0.1:1")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_ADDRESS", ours.address)
    monkeypatch.setenv("RAY_REDIS_ADDRESS", "127.0.0.1:1")
    done = anew(*searching(toy, "alone", "--trials", 1, "--rounds", 1), cwd=tmp_path)
    assert done.returncode == 0 and "1 trials done" in done.stdout, done.stderr
    assert noted.read_text() == "127.0.0.1:1" and [path.name for path in noted.parent.iterdir()] == [noted.name]
