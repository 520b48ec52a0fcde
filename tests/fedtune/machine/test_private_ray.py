"""A Ray of our own: what is told where it does not start, who may talk to it, and its folder among the machine's
temporary files, which is for this user alone and never somebody else's. (That its processes start outside the user's
folder is an end-to-end test, and that the token is asked for is tested in tests/security.)"""

from __future__ import annotations

import inspect
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from fedtune.machine import private_ray as module
from fedtune.machine.private_ray import LONGEST, chosen_place, leftovers, private_folder, started
from fedtune.machine.server_watch import NotStarted
from search_spaces.errors import UserError

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
        started(tmp_path, cores=1, with_gpus=False),
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
        with ends, started(folder, cores=1, with_gpus=False):
            assert signal.getsignal(signal.SIGTERM) == before
        assert signal.getsignal(signal.SIGTERM) == before


def test_ray_still_decides_by_this_variable_where_it_listens() -> None:
    from ray._private import ray_constants, services

    assert "if not ray_constants.ENABLE_RAY_CLUSTER" in inspect.getsource(services.get_node_ip_address)
    before = ray_constants.ENABLE_RAY_CLUSTER
    with module._on_loopback():
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

from fedtune.machine.private_ray import private_folder, started
from fedtune.machine.server_watch import NotStarted

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


def test_the_cases_of_its_token_hold() -> None:
    """In a process of its own: Ray reads its settings once for a process, and that of the tests may have a Ray which
    would then be shown no token."""
    cases = Path(__file__).with_name("ray_token_cases.py")
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", str(cases)]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(command, env=clean, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0 and "7 passed" in done.stdout, done.stdout + done.stderr


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where folders are made; short, as the path of a socket is."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="ft") as made:
        monkeypatch.setenv("RAY_TMPDIR", made)
        yield Path(made)


def a_leftover(place: Path, name: str = "fedtune-ray-0123456789a", mode: int = 0o700) -> Path:
    folder = place / name
    (folder / "r" / "logs").mkdir(parents=True)
    folder.chmod(mode)
    return folder


def test_the_folder_is_private_and_is_removed(place: Path) -> None:
    before = os.umask(0)
    try:
        with private_folder() as folder, private_folder() as other:
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700 and folder.parent == place
            assert folder != other and leftovers(place) == sorted([folder, other])
            (folder / "file").touch()
    finally:
        os.umask(before)
    assert list(place.iterdir()) == []


def test_sockets_fit(place: Path) -> None:
    """The longest path that Ray makes, with the longest process id of Linux, at the longest place."""
    name = "fedtune-ray-" + 11 * "x"
    session = "session_2026-11-23_11-57-15_123456_4194304"
    path = "/".join(("/" + (LONGEST - 1) * "x", name, module.RAY, session, "sockets", "plasma_store"))
    limit = 103 if sys.platform == "darwin" else 107
    assert len(path) == limit
    with private_folder() as folder:
        assert len(folder.name) == len(name)


def test_a_killed_search_s_folder_is_removed_by_the_next(place: Path) -> None:
    code = "import os\nfrom fedtune.machine.private_ray import private_folder\nwith private_folder(): os._exit(9)"
    subprocess.run([sys.executable, "-c", code], check=False)
    (left,) = leftovers(place)
    with private_folder() as folder:
        assert not left.exists() and folder.exists()


def test_what_is_in_use_stays(place: Path) -> None:
    code = (
        "from fedtune.machine.private_ray import private_folder\n"
        "with private_folder() as folder: print(folder, flush=True); input()"
    )
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    theirs = Path(other.stdout.readline().strip())
    with private_folder():
        assert theirs.exists()
    other.communicate("\n")
    assert not theirs.exists()


@pytest.mark.parametrize("name", ["fedtune-ray-abcdefgh", "fedtune-ray-0123456789ab", "fedtune-ray-0123456.89", "mine"])
def test_other_names_stay(place: Path, name: str) -> None:
    other = a_leftover(place, name)
    with private_folder():
        assert (other / "r" / "logs").exists()


def test_a_folder_that_others_may_enter_stays(place: Path) -> None:
    """It is none of ours, whatever it is called."""
    other = a_leftover(place, mode=0o755)
    with private_folder():
        assert (other / "r" / "logs").exists()


def test_no_link_is_followed(place: Path, tmp_path: Path) -> None:
    target = a_leftover(tmp_path, "precious")
    link, left = place / "fedtune-ray-link0123456", a_leftover(place)
    link.symlink_to(target)
    (left / "out").symlink_to(target)
    with private_folder():
        assert link.is_symlink() and (target / "r" / "logs").exists() and not left.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a folder of another user")
def test_somebody_else_s_folder_stays(place: Path) -> None:
    other = a_leftover(place)
    os.chown(other, 12345, 12345)
    with private_folder():
        assert (other / "r" / "logs").exists()


def test_a_folder_that_was_taken_for_left_behind_is_made_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another search cleans up between the making of the folder and its being held."""
    hold, seen = module._held, []

    def disturbed(folder: Path) -> int | None:
        seen.append(folder)
        if len(seen) == 1:
            folder.rmdir()
        return hold(folder)

    monkeypatch.setattr(module, "_held", disturbed)
    with private_folder() as folder:
        assert folder.exists() and folder == seen[1] != seen[0]


def test_too_long_a_place_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", "/" + LONGEST * "x")
    assert chosen_place() == Path("/tmp")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(UserError, match=f"at most {LONGEST} bytes and which may be written, got /xx.* and /tmp. Name"):
        chosen_place()
