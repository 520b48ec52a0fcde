"""The process of a machine from which Ray's processes fork: it has imported what a trial needs, and computes nothing.

To import PyTorch, Ray Tune and the engine takes two to three seconds of a processor and 400 MiB in each process. A
process that forks from a loaded one lives after a few hundredths of a second and shares what was loaded. So a search on
one machine has a fork server, started before anything else (`ahead`). Ray starts its processes with a program of
ours in place of Python's: it asks the fork server for a fork, which goes on as the process of Ray that was to be
(`fork_request.py`).

On a cluster an actor starts one on each machine that is there when a search joins (`OfMachine`), and Ray is told to
start processes with its program wherever a machine has that.

A fork ends with the fork server, and the fork server with the process that started it; Ray ends forks as it does any
process. Where the fork server has ended, Ray's processes are those that it would have started. Where trials compute on
a GPU there is no fork server, as CUDA does not live through a fork; on other systems than Linux there is none either.

Who may write to the socket says what a fork runs. So the socket lies in a folder that only this user may enter.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import re
import runpy
import select
import shlex
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from fedtune.machine import fork_request
from fedtune.machine.private_ray import private_folder, read_again, unused
from search_spaces.errors import UserError
from trainables.worker.environment import FORK

#: The socket, the program that Ray starts, and the log, in the private folder.
SOCKET, PYTHON, LOG = "forks", "python", "forks.log"
#: What forks share.
_IMPORTS = ("trainables.tune", "trainables.simulated_trial", "trainables.registry")
#: Ray's name for the first job of a Ray, so that of a search on a Ray of its own. Ray's compiled part reads the name of
#: its job when it is loaded, which is before a fork.
_JOB = "01000000"
#: What Ray starts as Python. Processes that run trials are forks. Three of Ray's others do nothing for a search, and
#: Ray waits for the first of them: what shows its dashboard, brings the driver what is printed, and adds machines.
_PROGRAM = """#!/bin/sh
case "$RAY_JOB_ID $1" in
"{job} "*/setup_worker.py | "{job} "*/default_worker.py) exec {python} -I -S {request} {socket} "$@" ;;
esac
case "$1 $2" in
*/dashboard/dashboard.py* | */log_monitor.py* | */autoscaler/_private/monitor.py*) exit ;;
esac
exec {python} "$@"
"""
#: What Ray is told to start as Python on a cluster: the program of the machine, if this user has made one there, else
#: what its raylet starts. Machines may share a disk, so each has a folder that is named after its number in Ray. Before
#: that, Ray has a Python of the cluster's own find out that it is told so, which takes 0.6 to 0.9 s of a core for each
#: process; a Ray of our own asks `_PROGRAM` at once.
_ELSEWHERE = """bash -c '
for word; do case $word in --node-id=*) python={folder}-${{word:10:8}}/{name};; esac; done
[ -O "$python" ] && [ -x "$python" ] || python=$(tr "\\0" "\\n" < /proc/$RAY_RAYLET_PID/cmdline |
    sed -n "s/^--python_worker_command=\\"*\\([^ \\"]*\\).*/\\1/p")
exec "$python" "$@"' fedtune"""
#: Where a job that was sent to a cluster finds its settings.
_SETTINGS = "RAY_JOB_CONFIG_JSON_ENV_VAR"
#: Of `prctl`: the signal that a process is sent when the one ends that forked it.
_PARENT_DEATH = 1
#: How gladly the system ends a fork where memory is short, as Ray has it for its own processes.
_BADNESS = 1000


#: The folder of the fork server that was started ahead, as long as nobody has taken it, and its program.
_ahead: tuple[Path, Path | None] | None = None


@contextlib.contextmanager
def ahead() -> Iterator[None]:
    """Inside, the first Ray that asks for it (`beside`) finds a fork server that was started now: it imports while this
    process does. Where this one has PyTorch already, there is nothing to gain, and none is started."""
    global _ahead
    with contextlib.ExitStack() as ours:
        # (Where there are GPUs trials compute on them. That there is no place for a folder is told when it is needed.)
        if sys.platform == "linux" and "torch" not in sys.modules and not Path("/proc/driver/nvidia").exists():
            with contextlib.suppress(UserError):
                folder = ours.enter_context(private_folder())
                _ahead = folder, ours.enter_context(started(folder))
        try:
            yield
        finally:
            _ahead = None


@contextlib.contextmanager
def beside(forks: bool) -> Iterator[tuple[Path, Path | None]]:
    """A private folder for a Ray, and the program with which that is to start its processes in place of Python's: with
    `forks`, where there can be a fork server. Raises `UserError` where there is no place for the folder."""
    global _ahead
    found, _ahead = _ahead, None
    if found is not None and forks:
        yield found
        return
    with contextlib.ExitStack() as ours:
        folder = ours.enter_context(private_folder())
        # On other systems libraries do not live through a fork.
        yield folder, ours.enter_context(started(folder)) if forks and sys.platform == "linux" else None


@contextlib.contextmanager
def started(folder: Path, job: str = _JOB, raylet: int | None = None) -> Iterator[Path | None]:
    """A fork server, until the block ends. folder: where its socket is to lie, which is for this user alone. job: Ray's
    name for the job whose processes fork. raylet: the process with which they end; None is this one.

    Gives the program with which Ray is to start its processes in place of Python's, or None where no program may lie
    in `folder`, and there is no fork server."""
    program = _program(folder, job)
    if not os.access(program, os.X_OK):  # where the disk is mounted so that nothing on it may run
        yield None
        return
    with contextlib.ExitStack() as ours:
        log = ours.enter_context(open(folder / LOG, "wb"))
        # The socket takes connections from here on; they wait until the server has imported everything.
        listening = ours.enter_context(socket.socket(socket.AF_UNIX))
        listening.bind(str(folder / SOCKET))
        listening.listen(1024)
        server = subprocess.Popen(
            [sys.executable, "-P", "-c", f"from {__name__} import serve; serve({listening.fileno()})"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            cwd=folder,
            pass_fds=(listening.fileno(),),
            start_new_session=True,  # Ctrl-C is for the driver
            env={
                **os.environ,
                # One thread for as long as it only imports: a process that has several must not fork.
                **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
                # A process of Ray ends with the one that has this number; a raylet of our own ends with this process.
                "RAY_JOB_ID": job,
                "RAY_RAYLET_PID": str(os.getpid() if raylet is None else raylet),
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            },
        )
    try:
        yield program
    finally:
        server.kill()  # it holds nothing, and its forks end with it
        server.wait()
        assert server.stdin is not None
        server.stdin.close()


def _program(folder: Path, job: str) -> Path:
    """The program that Ray starts as Python."""
    path = folder / PYTHON
    names = {"python": sys.executable, "request": fork_request.__file__, "socket": str(folder / SOCKET)}
    text = _PROGRAM.format(job=job, **{name: shlex.quote(value) for name, value in names.items()})
    path.write_bytes(os.fsencode(text))
    path.chmod(0o700)
    return path


def is_in(folder: Path) -> bool:
    """Whether a fork server was started beside this folder's Ray."""
    return (folder / SOCKET).exists()


# -- on the machines of a cluster ------------------------------------------------------------------------------------


def elsewhere() -> tuple[Path, dict[str, str]] | None:
    """How the names of folders on a cluster's machines begin, and the settings with which Ray starts processes that
    fork where a machine has one. None where that cannot be said to Ray: a job that was sent to a cluster has settings
    of its own, and no path may need quotes."""
    folder = unused()
    if sys.platform != "linux" or os.environ.get(_SETTINGS) or re.fullmatch(r"[\w./-]+", str(folder)) is None:
        return None
    return folder, {"py_executable": _ELSEWHERE.format(folder=folder, name=PYTHON)}


class OfMachine:
    """An actor of Ray that holds a fork server of its machine, if a folder for that can be made there. folder: how its
    name begins; node: the machine's number in Ray."""

    def __init__(self, folder: str, node: str) -> None:
        self._left = contextlib.ExitStack()
        private = self._left.enter_context(private_folder(Path(f"{folder}-{node[:8]}")))
        environment = os.environ
        of_ray = environment["RAY_JOB_ID"], int(environment["RAY_RAYLET_PID"])
        self._program = self._left.enter_context(started(private, *of_ray))

    def is_there(self) -> bool:
        """Whether there is one."""
        return self._program is not None

    def end(self) -> None:
        """Ends it, and removes the folder."""
        self._left.close()


# -- the fork server -------------------------------------------------------------------------------------------------


def serve(descriptor: int) -> NoReturn:
    """Imports, and forks for every connection to the listening socket, until stdin ends."""
    for name in _IMPORTS:
        importlib.import_module(name)
    methods = importlib.import_module("trainables.methods")
    for found in pkgutil.iter_modules(methods.__path__, f"{methods.__name__}."):
        importlib.import_module(found.name)
    gc.collect()
    gc.freeze()  # a fork that looks through what is loaded would copy it
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a fork
    server = os.getpid()
    with socket.socket(fileno=descriptor) as listening:
        while select.select([listening, sys.stdin], [], [])[0] == [listening]:
            connection, _ = listening.accept()
            if not os.fork():
                listening.close()
                _run(connection, server)
            connection.close()
    os._exit(0)  # it holds nothing, and to take apart what was imported would keep the driver waiting


def _run(connection: socket.socket, server: int) -> NoReturn:
    """In a fork of `server`: runs the program that is asked for, as a process that has just started would."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        with contextlib.suppress(OSError):
            ctypes.CDLL(None).prctl(_PARENT_DEATH, signal.SIGKILL)
            Path("/proc/self/oom_score_adj").write_text(str(_BADNESS))
        if os.getppid() != server:  # it ended before
            os._exit(code)
        os.setpgrp()  # Ray ends the group of a process that has ended
        begun, descriptors, *_ = socket.recv_fds(connection, 1, 2)
        with connection, connection.makefile("rb") as rest:
            command, environment, directory = json.loads(begun + rest.readline())
            for own, given in enumerate((os.open(os.devnull, os.O_RDONLY), *descriptors)):
                os.dup2(given, own)
                os.close(given)
            os.environ.clear()
            os.environ.update(environment)
            os.environ[FORK] = "1"
            os.chdir(directory)
            read_again()
            connection.sendall(fork_request.TAKEN)
        sys.argv[:] = command
        runpy.run_path(command[0], run_name="__main__")
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
