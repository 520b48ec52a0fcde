"""Clusters of machines that share no disk and no loopback: each is processes with a network of its own, joined to the
others by a bridge, and all but the first have a file system of their own, in which the folders of runs, data and cache
and the shared memory are empty. `make cluster-test` runs this file."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.end_to_end.cli import anew, searching
from tests.end_to_end.test_loopback import command_line, family
from tests.study_file import journal

#: So many that each machine gets a trial before the others have run them all.
TRIALS, ROUNDS = 5, 300
ALONE = ["unshare", "-m", "sh", "-c"]


def can_unshare() -> bool:
    """Whether this user may give a process a file system and a network of its own."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    tried = "mount -t tmpfs none /mnt && ip link add hub type bridge && ip link add one type veth peer name two"
    return not subprocess.run(["unshare", "-mn", "sh", "-c", tried], capture_output=True).returncode


pytestmark = pytest.mark.skipif(
    not can_unshare(), reason="needs unshare, ip, and the right to make file systems and networks"
)

HIDE = 'while [ "$1" != -- ]; do mount -t tmpfs none "$1" || exit 1; shift; done; shift; exec "$@"'
NODE = "import sys; from ray.scripts.scripts import cli; cli(['start', '--block', '--num-cpus', '1', *sys.argv[1:]])"


@contextlib.contextmanager
def networks(number: int) -> Iterator[list[str]]:
    """The names of so many networks, of which the first has a bridge to all others. The n-th one, counted from 1, has
    the address 10.77.0.n, and nothing else is reached from it."""
    names = [f"fedtune-{secrets.token_hex(4)}-{place}" for place in range(1, number + 1)]
    lines = [f"-n {names[0]} link add hub type bridge"]
    for place, name in enumerate(names, 1):
        own, hub = "eth0" if place > 1 else "hub", names[0]
        if place > 1:
            lines.append(f"-n {hub} link add port{place} type veth peer name eth0 netns {name}")
            lines.append(f"-n {hub} link set port{place} master hub up")
        lines += [f"-n {name} addr add 10.77.0.{place}/24 dev {own}", f"-n {name} link set {own} up"]
        lines.append(f"-n {name} link set lo up")
    try:
        for line in [*(f"netns add {name}" for name in names), *lines]:
            subprocess.run(["ip", *line.split()], check=True, capture_output=True)
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def inside(network: str) -> list[str]:
    """What runs the command that follows there."""
    return ["ip", "netns", "exec", network]


@contextlib.contextmanager
def machine(
    settings: dict[str, str], network: str, *words: str, hidden: Sequence[Path] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """A machine of a cluster, which `ray start` starts in that network; it sees nothing in the folders `hidden`."""
    own = f"10.77.0.{network.rpartition('-')[2]}"
    node = [sys.executable, "-c", NODE, "--node-ip-address", own, *words, "--disable-usage-stats"]
    apart = [*ALONE, HIDE, "sh", "/dev/shm", *map(str, hidden), "--", *node]
    command = [*inside(network), *(apart if hidden else node)]
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, env=os.environ | settings, stdout=said, stderr=subprocess.STDOUT)
        try:
            yield process
        except AssertionError as error:
            said.seek(0)
            error.add_note(f"{' '.join(words)} said, exit code {process.poll()}:\n{said.read()}")
            raise
        finally:
            for pid in family(process.pid):  # (`ray stop` would end every Ray of the machine)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)
            process.wait()


def test_trials_of_machines_without_the_runs_come_home(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three machines, of which the second and the third have an empty disk where runs, data and cache are. The second
    is killed while it runs a trial, the third joins then. The records are those of a search on one machine."""
    settings = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(16),
        "RAY_worker_niceness": "0",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "FEDTUNE_CACHE": str(tmp_path / "cache"),
    }
    # A Ray that other tests of this process share has variables of its own, with which `ray start` joins no cluster.
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        monkeypatch.delenv(name)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    hidden = [tmp_path / name for name in ("runs", "data", "cache")]
    for folder in hidden:
        folder.mkdir()
    own = tmp_path / "data" / "own.npz"
    shutil.copy(toy, own)
    asked = ("--trials", TRIALS, "--rounds", ROUNDS, "--slots", 2, "--no-confirm", "--scheduler", "none")
    with contextlib.ExitStack() as machines:
        first, *others = machines.enter_context(networks(3))
        # In one place for sockets each: two machines do not share that either.
        places = [machines.enter_context(tempfile.TemporaryDirectory(prefix="ft", dir="/tmp")) for _ in "123"]
        head = ("--head", "--port", "0", "--include-dashboard", "false", "--temp-dir", places[0])
        machines.enter_context(machine(settings, first, *head))
        noted = Path(places[0]) / "ray_current_cluster"
        address = waited(lambda: noted.read_text().strip() if noted.exists() else "", ".+")
        second = machines.enter_context(
            machine(settings, others[0], "--address", address, "--temp-dir", places[1], hidden=hidden)
        )
        monkeypatch.setenv("RAY_ADDRESS", address)
        waited(lambda: alive(first, tmp_path), "2 machines")
        command = [
            *inside(first),
            sys.executable,
            "-m",
            "fedtune",
            *map(str, searching(own, "apart", *asked)),
            "--address",
            address,
        ]
        said = machines.enter_context((tmp_path / "said").open("w"))
        search = subprocess.Popen(command, cwd=tmp_path, stdout=said, stderr=subprocess.STDOUT)
        waited(lambda: str("are sent home" in (tmp_path / "said").read_text() or search.poll()), "True")
        forks = [pid for pid in family(second.pid) if "fedtune.machine.fork_server" in command_line(pid)]
        assert forks, "the second machine has a fork server of its own"
        for pid in family(second.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        third = machines.enter_context(
            machine(settings, others[1], "--address", address, "--temp-dir", places[2], hidden=hidden)
        )
        waited(lambda: str(runs_a_trial(third.pid) or search.poll()), "True")
        code = search.wait(300)
    assert code == 0, (tmp_path / "said").read_text()
    done = anew(*searching(own, "alone", *asked), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    apart, alone = (read(tmp_path / "runs" / name) for name in ("apart", "alone"))
    assert len(apart) == len(alone) == TRIALS
    for number, (ours, theirs) in enumerate(zip(apart, alone, strict=True)):
        assert ours.keys() == theirs.keys()
        for key, value in ours.items():
            assert value == theirs[key], f"{key} of trial {number}"


def runs_a_trial(pid: int) -> bool:
    return any(command_line(child).startswith("ray::Trial") for child in family(pid))


def read(folder: Path) -> list[dict[str, object]]:
    """What the run holds of each trial, but for times."""
    import optuna

    study = optuna.load_study(study_name=None, storage=journal(folder))
    found = []
    for trial in study.trials:
        place = folder / f"trials/{trial.number:04d}"
        of_trial: dict[str, object] = {"state": trial.state, "params": trial.params, "values": trial.values}
        of_trial |= {f"value of round {round_}": value for round_, value in trial.intermediate_values.items()}
        of_trial |= {name: (place / name).read_text() for name in ("config.yaml", "partition.json")}
        for number, line in enumerate((place / "rounds.jsonl").read_text().splitlines()):
            of_trial |= {f"{key} in row {number}": v for key, v in json.loads(line).items() if "seconds" not in key}
        found.append(of_trial)
    return found


def alive(network: str, cwd: Path) -> str:
    """How many machines the cluster has, as seen from that network, or why that is not known."""
    code = (
        "import ray; ray.init(address='auto', logging_level='ERROR'); "
        "print(sum(node['Alive'] for node in ray.nodes()), 'machines')"
    )
    done = subprocess.run(
        [*inside(network), sys.executable, "-c", code], capture_output=True, text=True, cwd=cwd, check=False
    )
    return (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()[-1]


def waited(found: Callable[[], str], pattern: str, limit: float = 300) -> str:
    """What `found` says as soon as it says this."""
    deadline = time.monotonic() + limit
    while not re.fullmatch(pattern, result := found()):
        assert time.monotonic() < deadline, f"the cluster does not start: {result}"
        time.sleep(0.5)
    return result
