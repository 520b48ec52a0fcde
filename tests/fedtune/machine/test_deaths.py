"""What a trial's process died of."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from fedtune.machine import deaths
from fedtune.machine.deaths import Death, crashes, death, memory_kills
from tests import forked

#: What Ray 2.60 says of a process that is gone, and of one that it ended for lack of memory.
GONE = (
    "The actor died unexpectedly before finishing this task. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker "
    "unexpectedly exits with a connection error code 2. End of file. Some common causes include: (1) the process was "
    "killed by the OOM killer due to high memory usage, (2) ray stop --force was called, or (3) the worker crashed "
    "unexpectedly due to SIGSEGV or another unexpected error."
)
LOW = "1 worker(s) were killed due to the node running low on memory."
#: A process that tells of its crashes in the file of its first argument, and then does what the second one says.
TELLS = """
import ctypes, os, signal, sys
from trainables.worker.process import tell_crashes
with open(sys.argv[1], "a") as log:
    tell_crashes(log)
    exec(sys.argv[2])
"""


@pytest.mark.parametrize(
    ("said", "crashed", "memory_kill", "of"),
    [
        (GONE, False, False, Death.OUTSIDE),
        ("", False, False, Death.OUTSIDE),
        (GONE, True, False, Death.CRASH),
        (GONE, False, True, Death.MEMORY),
        (LOW, False, False, Death.MEMORY),
        (LOW, True, True, Death.MEMORY),
    ],
)
def test_what_a_process_died_of(said: str, crashed: bool, memory_kill: bool, of: Death) -> None:
    assert death(said, crashed=crashed, memory_kill=memory_kill) is of


@pytest.mark.usefixtures("forks")
@pytest.mark.parametrize(
    ("does", "number", "told"),
    [
        ("os.abort()", signal.SIGABRT, 1),
        ("ctypes.string_at(0)", signal.SIGSEGV, 1),
        ("os.kill(os.getpid(), signal.SIGFPE)", signal.SIGFPE, 1),
        ("os.kill(os.getpid(), signal.SIGBUS)", signal.SIGBUS, 0),
        ("os.kill(os.getpid(), signal.SIGILL)", signal.SIGILL, 0),
        ("os.kill(os.getpid(), signal.SIGKILL)", signal.SIGKILL, 0),
        ("os.kill(os.getpid(), signal.SIGTERM)", signal.SIGTERM, 0),
    ],
)
def test_a_crash_is_told_in_the_log(tmp_path: Path, does: str, number: int, told: int) -> None:
    log = tmp_path / "log.txt"
    assert crashes(log) == 0
    log.write_text("Epoch 1: Fatal Python error: Aborted, it says\n")
    done = forked.run(["-c", TELLS, str(log), does], cwd=tmp_path)
    assert done.returncode == -number, done.stderr
    assert crashes(log) == told


@pytest.mark.parametrize(
    ("own", "everywhere", "kills"),
    [
        ("low 0\noom 7\noom_kill 3\n", "oom_kill 9\n", 3),
        ("low 0\n", "pgfault 5\noom_kill 9\n", 9),
        (None, "oom_kill 9\n", 9),
        (None, "oom_kill\n", 0),
        (None, None, 0),
    ],
)
def test_the_system_counts_whom_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str | None, everywhere: str | None, kills: int
) -> None:
    monkeypatch.setattr(deaths, "_GROUPS", tmp_path)
    monkeypatch.setattr(deaths, "_ALL", tmp_path / "vmstat")
    monkeypatch.setattr(deaths, "_group", lambda: "/a/b")
    (tmp_path / "a/b").mkdir(parents=True)
    if own is not None:
        (tmp_path / "a/b/memory.events").write_text(own)
    if everywhere is not None:
        (tmp_path / "vmstat").write_text(everywhere)
    assert memory_kills() == kills
