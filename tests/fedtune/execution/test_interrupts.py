"""Ctrl-C, SIGTERM and hang-up are noted, and raised only where they cannot be lost."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time

import pytest

from fedtune.execution import interrupts
from fedtune.execution.interrupts import Interrupts


@pytest.mark.usefixtures("hang_up")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_is_noted(number: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "_silence", lambda: None)
    before = signal.getsignal(number)
    with Interrupts() as found:
        found.check()
        os.kill(os.getpid(), number)
        assert found.pending
        with pytest.raises(KeyboardInterrupt):
            found.check()
    assert signal.getsignal(number) == before


def test_only_a_second_ctrl_c_is_raised_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with Interrupts():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)  # the same one, sent once more by a program in between
        os.kill(os.getpid(), signal.SIGTERM)
        monkeypatch.setattr(interrupts, "_SAME", 0.0)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_what_was_to_be_ignored_stays_so() -> None:
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as found:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not found.pending
    finally:
        signal.signal(signal.SIGHUP, before)


def ended(code: str, *, wait: float = 30) -> int:
    return subprocess.run([sys.executable, "-c", code], timeout=wait, check=False).returncode


def test_after_sigterm_the_process_does_not_wait_for_ever() -> None:
    code = (
        "import os, signal, time\nfrom fedtune.execution import interrupts\ninterrupts.PATIENCE = 0.3\n"
        "with interrupts.Interrupts():\n    os.kill(os.getpid(), signal.{})\n    time.sleep({})\n"
    )
    began = time.monotonic()
    assert ended(code.format("SIGTERM", 60)) == 130 and time.monotonic() - began < 30
    assert ended(code.format("SIGINT", 1)) == 0, "Ctrl-C waits as long as the user does"


@pytest.mark.usefixtures("hang_up")
def test_a_terminal_that_is_gone_is_not_written_to() -> None:
    """The terminal of a process is closed; what the process prints afterwards must not fail."""
    code = (
        "import sys, time\nfrom fedtune.execution.interrupts import Interrupts\n"
        "with Interrupts() as found:\n"
        "    print('ready', flush=True)\n"
        "    while not found.pending: time.sleep(0.02)\n"
        "    print('out', flush=True); print('err', file=sys.stderr, flush=True)\n"
        "raise SystemExit(130)\n"
    )
    child, terminal = pty.fork()
    if child == 0:  # a new session whose terminal this is
        os.execv(sys.executable, [sys.executable, "-c", code])
    assert b"ready" in os.read(terminal, 100)
    os.close(terminal)
    deadline = time.monotonic() + 20
    found = (0, 0)
    while found[0] == 0 and time.monotonic() < deadline:
        found = os.waitpid(child, os.WNOHANG)
        time.sleep(0.05)
    assert found[0] == child and os.waitstatus_to_exitcode(found[1]) == 130
