"""A forked command has the surroundings, the signals and the end of one that Python starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import forked

#: Prints what it was given and has.
TELLS = """
import json, os, sys, tempfile, threading
print(json.dumps([
    __name__, sys.argv, sys.path[0], os.getcwd(), os.environ.get("GIVEN"), os.environ.get("MINE"),
    tempfile.gettempdir(), len(os.listdir("/proc/self/task")), os.getsid(0) == os.getpgid(0) == os.getpid(),
    sys.stdin.read(), "colorsys" in sys.modules,
]))
"""
SLEEPS = "import time; print('out', flush=True); time.sleep(60)"


@pytest.fixture(autouse=True)
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that forks imports little, so that it is there at once."""
    monkeypatch.setattr(forked, "_IMPORTS", ("colorsys",))


def test_a_command_has_what_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "m")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = forked.run(["-c", TELLS, "a", "b c"], cwd=tmp_path, settings={"GIVEN": "g"})
    here = str(tmp_path)
    assert json.loads(done.stdout) == ["__main__", ["-c", "a", "b c"], "", here, "g", "m", here, 1, True, "", True]
    assert (done.returncode, done.stderr) == (0, "")
    monkeypatch.delenv("MINE")
    (tmp_path / "told.py").write_text(TELLS)
    found = json.loads(forked.run(["-m", "told", "a"], cwd=tmp_path).stdout)
    assert found[:6] == ["__main__", [str(tmp_path / "told.py"), "a"], here, here, None, None]


@pytest.mark.parametrize(
    "code",
    [
        "print('a'); raise SystemExit",
        "import sys; sys.exit(2)",
        "import sys; sys.exit(-1)",
        "import sys; print('é'); sys.exit('said')",
        "import os; os.kill(os.getpid(), 15)",
        "import atexit; atexit.register(print, 'last'); print('first', end=' ')",
        "import threading; threading.Timer(0.05, print, ['later']).start(); print('sooner')",
        "import os; print('lost'); os._exit(3)",
    ],
)
def test_it_ends_as_python_ends_it(code: str, tmp_path: Path) -> None:
    done = forked.run(["-c", code], cwd=tmp_path)
    real = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (real.returncode, real.stdout, real.stderr)


def test_what_it_dies_of_is_told(tmp_path: Path) -> None:
    done = forked.run(["-c", "1 / 0"], cwd=tmp_path)
    assert done.returncode == 1 and done.stderr.endswith("ZeroDivisionError: division by zero\n")


def test_it_is_killed_while_it_runs(tmp_path: Path) -> None:
    process = forked.Process(["-c", SLEEPS], cwd=tmp_path)
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.communicate(timeout=0.01)
    process.kill()
    out, _ = process.communicate(timeout=30)
    assert process.poll() == process.wait() == -signal.SIGKILL and out in ("", "out\n")
    process.kill()  # nothing is there to be killed


def test_a_signal_to_its_group_reaches_what_it_started(tmp_path: Path) -> None:
    waits = "import time; open('ready', 'w').close(); time.sleep(60)"
    starts = f"import subprocess, sys; print(subprocess.run([sys.executable, '-S', '-c', {waits!r}]).returncode)"
    process = forked.Process(["-c", f"import signal; signal.signal(2, lambda *_: None); {starts}"], cwd=tmp_path)
    deadline = time.monotonic() + 30
    while not (tmp_path / "ready").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, "-2\n"), err


def test_one_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    code = f"import os; open('pid', 'w').write(str(os.getpid())); {SLEEPS}"
    with pytest.raises(subprocess.TimeoutExpired):
        forked.run(["-c", code], cwd=tmp_path, timeout=0.5)
    deadline = time.monotonic() + 30
    while Path("/proc", (tmp_path / "pid").read_text()).exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(("action", "ended"), [(signal.SIG_IGN, False), (signal.SIG_DFL, True)])
def test_a_hang_up_is_ignored_as_in_the_test(action: signal.Handlers, ended: bool, tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, action)
    try:
        done = forked.run(["-c", "import os; os.kill(os.getpid(), 1)"], cwd=tmp_path)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert done.returncode == (-signal.SIGHUP if ended else 0)


def test_a_setting_that_would_have_no_effect_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="RAY_ADDRESS is read when"):
        forked.run(["-c", ""], cwd=tmp_path, settings={"RAY_ADDRESS": "a"})


def test_a_directory_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="could not be started"):
        forked.run(["-c", ""], cwd=tmp_path / "none")


def test_nothing_outlives_the_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked, "_IMPORTS", ("colorsys", "string"))  # one of this test's own
    process = forked.Process(["-c", SLEEPS], cwd=tmp_path)
    forked._server(("colorsys", "string")).close()
    assert process.wait(30) == -signal.SIGKILL
