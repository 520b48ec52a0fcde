"""Programs that Ray starts run in forks of a loaded process: the same numbers, what they are told, and their end."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import shlex
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fedtune.machine import fork_request, fork_server, private_ray
from search_spaces.errors import UserError
from tests.fedtune.fake import Fake
from tests.trainables.jobs import job_of, untimed_rows
from trainables.tune import Trial
from trainables.worker.environment import Environment
from trainables.worker.job import Job

#: Simulates the job in the file that it is given.
SIMULATES = """
import pickle, sys
from trainables.simulated_trial import SimulatedTrial
with open(sys.argv[1], "rb") as file:
    trial = SimulatedTrial(pickle.load(file), False, lambda *asked: None)
while not (result := trial.step())["done"]:
    pass
print(result["ending"].stop_reason, result["ending"].round)
"""
#: Says what it finds.
SAYS = """
import json, os, sys
print(json.dumps([sys.argv, dict(os.environ), os.getcwd(), os.readlink("/proc/self/fd/0"), os.getppid(), __name__,
                  os.getpgrp() == os.getpid()]))
print("aside", file=sys.stderr)
sys.exit(7)
"""


@contextlib.contextmanager
def server() -> Iterator[tuple[Path, int]]:
    """The program that Ray would start, and the number of the fork server."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name, fork_server.started(Path(name)) as program:
        assert program is not None and fork_server.is_in(Path(name))
        yield program, server_in(Path(name))


@pytest.fixture(scope="module")
def forks() -> Iterator[tuple[Path, int]]:
    with server() as found:
        yield found


def server_in(folder: Path) -> int:
    """The number of the fork server in `folder`, which has no fork yet."""
    found: list[int] = []

    def is_there() -> bool:
        asked = subprocess.run(["pgrep", "-f", "from fedtune.machine.fork_server"], capture_output=True, text=True)
        with contextlib.suppress(OSError):  # one that has ended meanwhile
            found[:] = [int(pid) for pid in asked.stdout.split() if os.readlink(f"/proc/{pid}/cwd") == str(folder)]
        return bool(found)

    assert soon(is_there)
    return min(found)


def setup(folder: Path, text: str, name: str = "default_worker.py") -> list[str]:
    """The arguments with which Ray starts a process that has variables of its own, where its program is `text`."""
    (folder / name).write_text(text)
    context = json.dumps({"env_vars": {"OWN": "${LIKE}-so"}, "py_executable": sys.executable, "command_prefix": []})
    setting = f"--serialized-runtime-env-context={context}"
    return ["/of/ray/setup_worker.py", str(folder / name), "--one=1", "--language=PYTHON", setting]


def start(program: Path, arguments: list[str], **more: Any) -> subprocess.Popen[str]:
    environment = {**os.environ, "RAY_JOB_ID": "01000000", "LIKE": "like", **more.pop("settings", {})}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([program, *arguments], text=True, env=environment, **{**pipes, **more})


def job(folder: Path, *, simulate: Any = None, forks: bool = False, **values: Any) -> Job:
    more = {"threads": values.pop("threads", 1), "environment": Environment(forks=forks), "simulate": simulate}
    return job_of(folder, "fedavg", values, (0, 1), **more)


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


@pytest.mark.parametrize("threads", [1, 2])
def test_a_fork_gives_the_bits_that_a_process_of_its_own_gives(
    tmp_path: Path, forks: tuple[Path, int], threads: int
) -> None:
    values = {"rounds": 2, "clients": 3, "local_steps": 2, "model": "lenet5", "dataset": "digits", "threads": threads}
    found = []
    for program in (str(forks[0]), sys.executable):
        folder = tmp_path / Path(program).parent.name
        (asked := tmp_path / "job").write_bytes(pickle.dumps(job(folder, **values)))
        (tmp_path / "default_worker.py").write_text(SIMULATES)
        process = start(Path(program), [str(tmp_path / "default_worker.py"), str(asked)])
        out, err = process.communicate(timeout=120)  # ends where everyone has ended that prints there
        assert out == "completed 2\n", err
        found.append(untimed_rows(folder))
    assert len(found[0]) == 4 and found[0] == found[1]


def test_a_fork_finds_what_the_process_would_find_that_ray_starts(tmp_path: Path, forks: tuple[Path, int]) -> None:
    process = start(forks[0], setup(tmp_path, SAYS), cwd=tmp_path)
    out, err = process.communicate(timeout=60)
    arguments, environment, directory, stdin, parent, name, has_own_group = json.loads(out)
    assert arguments == [str(tmp_path / "default_worker.py"), "--one=1"] and name == "__main__"
    assert environment["OWN"] == "like-so" and environment["LIKE"] == "like"
    assert "OMP_NUM_THREADS" not in environment or environment["OMP_NUM_THREADS"] == os.environ["OMP_NUM_THREADS"]
    assert (directory, stdin, parent) == (str(tmp_path), "/dev/null", forks[1]) and has_own_group
    assert err == "aside\n" and process.returncode == 0  # Ray does not ask how its first process ended


def test_a_fork_is_handed_the_token_that_ray_is_to_show(tmp_path: Path, forks: tuple[Path, int]) -> None:
    asks = "from fedtune.machine.private_ray import _raylet\n"
    asks += "print(_raylet().AuthenticationTokenLoader.instance().has_token())"
    (tmp_path / "token").write_text("of this Ray")
    for mode in ("token", "disabled"):
        settings = {"RAY_AUTH_MODE": mode, "RAY_AUTH_TOKEN_PATH": str(tmp_path / "token")}
        out, _ = start(forks[0], setup(tmp_path, asks), settings=settings).communicate(timeout=60)
        assert out == f"{mode == 'token'}\n"


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        (["{}/agent.py"], {}),
        (["-u", "{}/default_worker.py"], {}),
        (["{}/default_worker.py"], {"RAY_JOB_ID": "02000000"}),
    ],
    ids=["another program", "other options", "another job"],
)
def test_other_processes_of_ray_are_what_they_were(
    tmp_path: Path, forks: tuple[Path, int], arguments: list[str], settings: dict[str, str]
) -> None:
    for name in ("agent.py", "default_worker.py"):
        (tmp_path / name).write_text(SAYS)
    process = start(forks[0], [one.format(tmp_path) for one in arguments], settings=settings)
    out, _ = process.communicate(timeout=60)
    assert json.loads(out)[4] == os.getpid() and process.returncode == 7


@pytest.mark.parametrize(
    "context",
    [{"py_executable": "/other/python"}, {"command_prefix": ["nice"]}, {"override_worker_entrypoint": "a.py"}],
)
def test_a_process_that_is_to_find_more_than_variables_is_no_fork(context: dict[str, object]) -> None:
    given = f"--serialized-runtime-env-context={json.dumps({'env_vars': {'A': 'b'}, **context})}"
    assert fork_request.forkable(["/ray/setup_worker.py", "default_worker.py", given], {}) is None
    only = '--serialized-runtime-env-context={"env_vars": {"A": "b"}}'
    found = fork_request.forkable(["/ray/setup_worker.py", "default_worker.py", only], {"C": "d"})
    assert found == (["default_worker.py"], {"A": "b", "C": "d"})
    assert fork_request.forkable(["/ray/setup_worker.py", "-m", "another"], {}) is None


def test_a_killed_server_takes_its_forks_along_and_others_are_no_forks(tmp_path: Path) -> None:
    with server() as (program, pid):
        start(program, setup(tmp_path, "import time; time.sleep(600)"), stdout=None, stderr=None).wait(60)
        (fork,) = children(pid)
        os.kill(pid, signal.SIGKILL)
        assert soon(lambda: gone(fork))
        (tmp_path / "default_worker.py").write_text(SAYS)
        process = start(program, [str(tmp_path / "default_worker.py")])
        out, _ = process.communicate(timeout=60)
        assert json.loads(out)[4] == os.getpid() and process.returncode == 7


def test_a_server_ends_with_who_started_it_and_its_forks_in_the_middle_of_a_round(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        starting = os.fork()
        if not starting:
            with fork_server.started(Path(name)):
                time.sleep(600)
        assert soon(lambda: fork_server.is_in(Path(name)))
        (asked := tmp_path / "job").write_bytes(
            pickle.dumps(job(tmp_path / "t", simulate=Fake, rounds=4, alpha=0.3, sleep=600, **{"lambda": 0.7}))
        )
        (tmp_path / "default_worker.py").write_text(SIMULATES)
        program = Path(name) / fork_server.PYTHON
        start(program, [str(tmp_path / "default_worker.py"), str(asked)], stdout=None, stderr=None).wait(60)
        pid = server_in(Path(name))
        (fork,) = children(pid)
        assert soon(lambda: (tmp_path / "t" / "partition.json").exists())
        os.kill(starting, signal.SIGKILL)
        os.waitpid(starting, 0)
        assert soon(lambda: gone(pid) and gone(fork)) and not (tmp_path / "t" / "rounds.jsonl").read_text()


@pytest.fixture
def nothing_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has just begun."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)


def test_nothing_is_started_ahead_where_all_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", sys)
    with fork_server.ahead():
        assert fork_server._ahead is None


@pytest.mark.usefixtures("nothing_is_loaded")
def test_a_ray_of_a_command_takes_the_fork_server_that_was_started_ahead() -> None:
    with fork_server.ahead():
        assert fork_server._ahead is not None
        folder = fork_server._ahead[0]
        with fork_server.beside(forks=False) as (another, program):  # as for trials on a cluster
            assert another != folder and program is None
        assert fork_server._ahead is None
    assert not folder.exists() and not another.exists()
    with fork_server.ahead():
        pid = server_in(fork_server._ahead[0])
        with fork_server.beside(forks=True) as (folder, program):
            assert program == folder / fork_server.PYTHON and server_in(folder) == pid
        with fork_server.beside(forks=True) as (second, _):
            assert second != folder and server_in(second) != pid
        assert not second.exists() and folder.exists()
    assert gone(pid) and not folder.exists()


@pytest.mark.usefixtures("nothing_is_loaded")
def test_nothing_is_started_ahead_where_there_are_gpus_or_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    exists = Path.exists
    with monkeypatch.context() as patched:
        patched.setattr(Path, "exists", lambda path: str(path) == "/proc/driver/nvidia" or exists(path))
        with fork_server.ahead():
            assert fork_server._ahead is None
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with fork_server.ahead():
        assert fork_server._ahead is None
        with pytest.raises(UserError, match="TMPDIR"), fork_server.beside(forks=True):
            pass


@pytest.mark.parametrize(
    ("command", "begins"),
    [("dashboard/dashboard.py", False), ("-u _private/log_monitor.py", False)]
    + [("-u autoscaler/_private/monitor.py --one", False), ("-u dashboard/agent.py", True)],
)
def test_what_does_nothing_for_a_search_does_not_begin(
    tmp_path: Path, forks: tuple[Path, int], command: str, begins: bool
) -> None:
    arguments = [one if one.startswith("-") else str(tmp_path / one) for one in command.split()]
    file = next(Path(one) for one in arguments if one.endswith(".py"))
    file.parent.mkdir(parents=True)
    file.write_text("print('begun')")
    process = start(forks[0], arguments)
    assert process.communicate(timeout=60)[0] == ("begun\n" if begins else "") and process.returncode == 0


def test_on_a_cluster_each_machine_has_its_own_or_starts_what_its_raylet_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = fork_server.elsewhere()
    assert found is not None
    folder, settings = found
    (tmp_path / "default_worker.py").write_text(SAYS)
    monkeypatch.setenv("RAY_JOB_ID", "07000000")
    raylet = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)", "--one", f"--python_worker_command={sys.executable} a b"]
    )
    monkeypatch.setenv("RAY_RAYLET_PID", str(raylet.pid))
    there = fork_server.OfMachine(str(folder), "0123456789abcdef")
    assert there.is_there()

    def parent_of(node: str) -> int:
        """The parent of the process that Ray would start there."""
        arguments = [str(tmp_path / "default_worker.py"), "--one", f"--node-id={node}"]
        command = f"exec {settings['py_executable']} {shlex.join(arguments)}"  # as Ray's setup_worker.py has it
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
        said, environment, *_, parent, _, _ = json.loads(done.stdout)
        assert said == arguments and environment["RAY_JOB_ID"] == "07000000", done.stderr
        return int(parent)

    try:
        own = Path(f"{folder}-01234567")
        assert stat.S_IMODE(own.stat().st_mode) == 0o700
        assert parent_of("0123456789abcdef") == server_in(own) and parent_of("fedcba9876543210") == os.getpid()
        if os.geteuid() == 0:
            os.chown(own / fork_server.PYTHON, 1, 1)  # another user's
            assert parent_of("0123456789abcdef") == os.getpid()
        there.end()
        assert not Path(f"{folder}-01234567").exists()
    finally:
        raylet.kill()
        raylet.wait()


def test_nothing_is_said_to_ray_that_it_cannot_take(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fork_server.elsewhere() is not None
    with monkeypatch.context() as patched:
        patched.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")  # a job that was sent to a cluster
        assert fork_server.elsewhere() is None
    monkeypatch.setattr(fork_server, "unused", lambda: Path("/tmp/a b/c"))
    assert fork_server.elsewhere() is None


def test_where_no_program_may_run_in_the_folder_there_is_no_fork_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # as on a disk mounted with `noexec`
    with fork_server.started(tmp_path) as program:
        assert program is None and not fork_server.is_in(tmp_path)


def test_ray_starts_with_the_program_and_python_is_what_it_was_afterwards(tmp_path: Path) -> None:
    before = sys.executable
    with private_ray._starting_with(tmp_path / "python"):
        assert sys.executable == str(tmp_path / "python")
    with private_ray._starting_with(None):
        assert sys.executable == before
    assert sys.executable == before and sys.modules["multiprocessing.spawn"].get_executable() != tmp_path / "python"


def test_a_process_that_was_to_be_a_fork_and_is_none_says_so_once(tmp_path: Path) -> None:
    given = {"rounds": 4, "alpha": 0.3, "lambda": 0.7}
    trial = Trial({"job": job(tmp_path / "t", simulate=Fake, forks=True, **given)})
    assert "process from which Ray's processes fork has ended" in trial.step()["note"]
    assert trial.step().get("note") is None
    trial.cleanup()
