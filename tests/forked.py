"""Python commands in processes of their own that need not import what they use.

`run(["-m", "fedtune", "status", "a"], cwd=here)` does what `subprocess.run([sys.executable, "-m", "fedtune", "status",
"a"], cwd=here)` does, and `Process` is its `Popen`. One process for all tests of a session imports what the commands
import, which takes two to three seconds of a processor, and forks for each of them. It computes nothing, as a process
that has threads must not fork. The fixture `forks` starts it, so that no test's seconds are those of the imports. What
a command prints goes to files: a pipe stays open while any process of Ray lives.

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
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import traceback
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

from fedtune.machine.cluster import ENVIRONMENT

ROOT = Path(__file__).resolve().parents[1]
#: What fedtune's commands import when they begin to work, the largest first.
_IMPORTS = ("torch", "ray.tune", "trainables.tune", "fedtune.api.search", "fedtune.cli", "alembic.command")
#: The beginnings of the names of settings that PyTorch, NumPy, Ray or Python itself read when they are imported.
_READ_AT_IMPORT = ("PYTHON", "OMP_", "MKL_", "OPENBLAS_", "TORCH_", "ATEN_", "ONEDNN_", "RAY_", "TUNE_")
#: The settings under which they are imported: those at the start of the session, one thread, and fedtune's own of Ray.
_SETTINGS = {**os.environ, "OMP_NUM_THREADS": "1"}
#: A message to the test: whether the command began or ended, and its process or exit code.
_BEGAN, _ENDED = 0, 1
_MESSAGE = struct.Struct("!2i")


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
        self.args = words
        self.returncode: int | None = None
        self._out, self._err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
        self._messages, theirs = socket.socketpair()
        request = {"words": words, "cwd": str(cwd), "environment": environment, "hang_up": _hang_up()}
        with theirs:
            descriptors = [theirs.fileno(), self._out.fileno(), self._err.fileno()]
            socket.send_fds(_server(_IMPORTS), [b"\0"], descriptors)
        self._messages.sendall(json.dumps(request).encode() + b"\n")
        what, self.pid = self._told()
        if what == _ENDED:
            raise OSError(f"{words} could not be started in {cwd}.")

    def _told(self) -> tuple[int, int]:
        """The next message of the server."""
        said = self._messages.recv(_MESSAGE.size, socket.MSG_WAITALL)
        if not said:
            raise RuntimeError("The process that forks has died.")
        what, number = _MESSAGE.unpack(said)
        return what, number

    def poll(self) -> int | None:
        """The exit code, minus a signal's number where that ended the command; None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, after the end. Raises `subprocess.TimeoutExpired` after `timeout` seconds."""
        if self.returncode is None:
            if not select.select([self._messages], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            _, self.returncode = self._told()
            self._messages.close()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What was printed on standard output and error, after the end. Raises as `wait`."""
        self.wait(timeout)
        return _text(self._out), _text(self._err)

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


def _hang_up() -> bool:
    """Whether a hang-up ends what the test starts (the fixture `hang_up`)."""
    return signal.getsignal(signal.SIGHUP) != signal.SIG_IGN


def _text(file: IO[bytes]) -> str:
    """All that was written, from wherever the writer has come to."""
    written = os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)
    return written.decode().replace("\r\n", "\n")


@functools.cache
def _server(imports: Sequence[str]) -> socket.socket:
    """The way to the process that forks, which is started with the first command and ends with this process."""
    ours, theirs = socket.socketpair()
    with theirs:
        words = [sys.executable, "-m", "tests.forked", str(theirs.fileno()), *imports]
        settings = {**ENVIRONMENT, **_SETTINGS}
        process = subprocess.Popen(
            words, cwd=ROOT, env=settings, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], start_new_session=True
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _serve(requests: socket.socket) -> dict[str, Any]:
    """Forks for each request until the tests have ended. Returns in each child, which is ready to be the command."""
    running: dict[int, socket.socket] = {}
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    sources: list[Any] = [requests, woken]
    while True:
        ready = select.select(sources, [], [])[0]
        if woken in ready:
            os.read(woken, 1 << 12)
            for pid in list(running):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    _tell(running.pop(pid), _ENDED, os.waitstatus_to_exitcode(status))
        if requests in ready:
            _, descriptors, _, _ = socket.recv_fds(requests, 1, 3)
            if not descriptors:
                for pid, messages in running.items():
                    _kill(pid)
                    _tell(messages, _ENDED, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                os._exit(0)
            messages = socket.socket(fileno=descriptors[0])
            pid = os.fork()
            if pid == 0:
                for other in (requests, *running.values()):
                    other.close()
                os.close(woken)
                os.close(wake)
                return _become(messages, *descriptors[1:])
            for descriptor in descriptors[1:]:
                os.close(descriptor)
            running[pid] = messages


def _tell(messages: socket.socket, what: int, number: int) -> None:
    with contextlib.suppress(OSError):  # the test has ended
        messages.sendall(_MESSAGE.pack(what, number))
    messages.close()


def _become(messages: socket.socket, out: int, err: int) -> dict[str, Any]:
    """Takes over what the request says, and says that the command begins."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    with messages.makefile("rb") as lines:
        request: dict[str, Any] = json.loads(lines.readline())
    signal.signal(signal.SIGHUP, signal.SIG_DFL if request["hang_up"] else signal.SIG_IGN)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None  # it is asked for again, in this environment
    for number, descriptor in ((1, out), (2, err)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    _tell(messages, _BEGAN, os.getpid())
    return request


def _carry_out(words: Sequence[str]) -> int:
    """The exit code, as Python would have it."""
    option, what, *rest = words
    sys.argv = [what if option == "-m" else option, *rest]
    sys.path[0] = os.getcwd() if option == "-m" else ""
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


if __name__ == "__main__":
    for name in sys.argv[2:]:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # what is never looked at again stays shared with the children
    _end(_carry_out(_serve(socket.socket(fileno=int(sys.argv[1])))["words"]))
