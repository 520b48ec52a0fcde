"""A cluster of two machines that share no disk: the second one is a process with a file system of its own, in which the
folder of the runs is empty."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.end_to_end.cli import anew, searching
from tests.end_to_end.test_loopback import family
from tests.study_file import journal

#: So many that the second machine gets a trial before the first one has run them all.
ROUNDS = 150
ALONE = ["unshare", "-m", "sh", "-c"]


def can_unshare() -> bool:
    """Whether this user may give a process a file system of its own."""
    mounts = "mount -t tmpfs none /mnt"
    return shutil.which("unshare") is not None and not subprocess.run([*ALONE, mounts], capture_output=True).returncode


pytestmark = pytest.mark.skipif(not can_unshare(), reason="needs the right to mount")

NODE = "import sys; from ray.scripts.scripts import cli; cli(['start', '--block', '--num-cpus', '1', *sys.argv[1:]])"


@contextlib.contextmanager
def machine(settings: dict[str, str], *words: str, hidden: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A machine of a cluster, which `ray start` starts; it sees nothing in `hidden`."""
    node = [sys.executable, "-c", NODE, *words, "--disable-usage-stats"]
    command = node if hidden is None else [*ALONE, 'mount -t tmpfs none "$0" && exec "$@"', str(hidden), *node]
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


def test_a_machine_that_does_not_see_the_run_is_refused(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(16),
        "RAY_worker_niceness": "0",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    # A Ray that other tests of this process share has variables of its own, with which `ray start` joins no cluster.
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        monkeypatch.delenv(name)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "runs").mkdir()
    with contextlib.ExitStack() as machines:
        # In one place for sockets each: two machines do not share that either.
        first, second = (machines.enter_context(tempfile.TemporaryDirectory(prefix="ft", dir="/tmp")) for _ in "12")
        machines.enter_context(
            machine(settings, "--head", "--port", "0", "--include-dashboard", "false", "--temp-dir", first)
        )
        noted = Path(first) / "ray_current_cluster"
        address = waited(lambda: noted.read_text().strip() if noted.exists() else "", ".+")
        machines.enter_context(machine(settings, "--address", address, "--temp-dir", second, hidden=tmp_path / "runs"))
        monkeypatch.setenv("RAY_ADDRESS", address)
        waited(lambda: alive(tmp_path), "2 machines")
        asked = ("--address", address, "--trials", 4, "--rounds", ROUNDS, "--slots", 2)
        done = anew(*searching(toy, "lost", *asked), cwd=tmp_path)
    folder = tmp_path / "runs" / "lost"
    assert done.returncode == 2, (done.stdout, done.stderr)
    told = done.stderr.splitlines()[-1]
    assert re.match(
        rf"The machine \S+ does not see the run directory {folder}, so what its trials write would be ", told
    )
    assert told.endswith(f"no trial was scored by this. Then go on with `fedtune resume {folder}`.")
    import optuna

    study = optuna.load_study(study_name=None, storage=journal(folder))
    for trial in study.trials:  # what the machine that sees the run has finished by then is whole
        rows = folder / f"trials/{trial.number:04d}/rounds.jsonl"
        assert trial.state.name in ("RUNNING", "COMPLETE")
        assert trial.state.name == "RUNNING" or len(rows.read_text().splitlines()) == ROUNDS


def alive(cwd: Path) -> str:
    """How many machines the cluster has, or why that is not known."""
    code = (
        "import ray; ray.init(address='auto', logging_level='ERROR'); "
        "print(sum(node['Alive'] for node in ray.nodes()), 'machines')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=cwd, check=False)
    return (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()[-1]


def waited(found: Callable[[], str], pattern: str, limit: float = 300) -> str:
    """What `found` says as soon as it says this."""
    deadline = time.monotonic() + limit
    while not re.fullmatch(pattern, result := found()):
        assert time.monotonic() < deadline, f"the cluster does not start: {result}"
        time.sleep(0.5)
    return result
