"""Python commands in processes of their own that need not import what they use.

`run(["-m", "fedtune", "status", "a"], cwd=here)` does what `subprocess.run([sys.executable, "-m", "fedtune", "status",
"a"], cwd=here)` does, and `Process` is its `Popen`. The fork server of `multiprocessing` imports what the commands
import, once for all tests of a session, as that takes two to three seconds of a processor, and forks for each command.
It computes nothing, as a process that has threads must not fork. The fixture `forks` starts it, so that no test's
seconds are those of the imports. What a command prints goes to files: a pipe stays open while any process of Ray lives.

Where one of these is tested, a process is to be started as a user starts it:

- what is imported, from where, and how long that takes; strangers on the path, as our own packages are there already;
- the interpreter, its options, its standard streams, the installed script;
- signals in a command's first moments;
- settings of a library that reads them when it is imported, as Ray does;
- the command line or the environment of the process in /proc, which are those of the one that forks.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
import types
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn
from unittest import mock

from fedtune.machine.cluster import ENVIRONMENT

ROOT = Path(__file__).resolve().parents[1]
#: What fedtune's commands import when they begin to work, the largest first.
_IMPORTS = ("torch", "ray.tune", "trainables.tune", "fedtune.api.search", "fedtune.cli")
#: The beginnings of the names of settings that PyTorch, NumPy, Ray or Python itself read when they are imported.
_READ_AT_IMPORT = ("PYTHON", "OMP_", "MKL_", "OPENBLAS_", "TORCH_", "ATEN_", "ONEDNN_", "RAY_", "TUNE_")
#: The settings under which they are imported: those at the start of the session, one thread, and fedtune's own of Ray.
_SETTINGS = {**ENVIRONMENT, **os.environ, "OMP_NUM_THREADS": "1"}


def run(
    words: Sequence[str], *, cwd: Path, settings: Mapping[str, str] | None = None, timeout: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Carries out `python *words` and waits for its end. Raises `subprocess.TimeoutExpired` after `timeout` seconds,
    when it has been killed."""
    process = Process(words, cwd=cwd, settings=settings)
    try:
        out, err = process.communicate(timeout)
    except BaseException:
        _kill(process.pid)
        raise
    return subprocess.CompletedProcess(words, process.wait(), out, err)


class Process:
    """`python *words`, running beside the test in the directory `cwd`, in a session and a group of its own, with the
    test's environment and `settings`. Its methods are those of `subprocess.Popen`. Raises `ValueError` where one of
    `settings` would have no effect."""

    def __init__(self, words: Sequence[str], *, cwd: Path, settings: Mapping[str, str] | None = None) -> None:
        for name in settings or ():
            if name.startswith(_READ_AT_IMPORT):
                raise ValueError(f"{name} is read when a library is imported. Start a process with `subprocess`.")
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **(settings or {})}
        hang_up = signal.getsignal(signal.SIGHUP) != signal.SIG_IGN  # the fixture `hang_up`
        self.args = words
        self._printed = [tempfile.NamedTemporaryFile() for _ in range(2)]  # noqa: SIM115
        began, theirs = multiprocessing.Pipe(duplex=False)
        self._process = _server().Process(
            target=_become,
            args=(words, str(cwd), environment, [file.name for file in self._printed], hang_up, theirs),
            daemon=True,  # ended with the tests
        )
        self._process.start()
        theirs.close()
        with began:
            try:
                self.pid: int = began.recv()
            except EOFError:
                raise OSError(f"{words} could not be started in {cwd}.") from None

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        """The exit code, minus a signal's number where that ended the command; None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, after the end. Raises `subprocess.TimeoutExpired` after `timeout` seconds."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return self._process.exitcode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What was printed on standard output and error, after the end. Raises as `wait`."""
        self.wait(timeout)
        out, err = (Path(file.name).read_text(encoding="utf-8") for file in self._printed)
        return out, err

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _kill(pid: int) -> None:
    """Ends a command and the processes of its group."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)


@functools.cache
def _server() -> multiprocessing.context.ForkServerContext:
    """The fork server, which is started with the first command and ends with this process."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.forked", "pytest", *_IMPORTS])
    with mock.patch.dict(os.environ, _SETTINGS, clear=True), contextlib.chdir(ROOT):
        forkserver.ensure_running()
    return context


def _become(
    words: Sequence[str],
    cwd: str,
    environment: Mapping[str, str],
    printed: Sequence[str],
    hang_up: bool,
    began: Connection,
) -> NoReturn:
    """In the fork: takes over its surroundings, says that the command begins, and carries it out."""
    os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_DFL if hang_up else signal.SIG_IGN)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # it is asked for again, in this environment
    for number, path in enumerate(printed, 1):
        descriptor = os.open(path, os.O_WRONLY)
        os.dup2(descriptor, number)
        os.close(descriptor)
    with began:
        began.send(os.getpid())
    _end(_carry_out(words))


def _carry_out(words: Sequence[str]) -> int:
    """The exit code, as Python would have it."""
    option, what, *rest = words
    sys.argv = [what if option == "-m" else option, *rest]
    sys.path.insert(0, os.getcwd() if option == "-m" else "")
    try:
        if option == "-m":
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            sys.modules["__main__"] = types.ModuleType("__main__")
            exec(compile(what, "<string>", "exec"), vars(sys.modules["__main__"]))
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _end(code: int) -> NoReturn:
    """As Python would, but for the memory, which is not taken apart: that would take longer than most commands."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code & 0xFF)
