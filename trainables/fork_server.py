"""The process of a machine from which trials fork: it has imported what a trial needs, and computes nothing.

To import PyTorch and the engine takes two to three seconds of a processor and 250 MiB in each process. A process that
forks from a loaded one lives after a few hundredths of a second and shares what was loaded. So a search on one machine
starts a fork server while Ray starts. A process of Ray then simulates nothing: it asks for a fork, which hosts a
`HostedTrials`, and hands on what it is asked and what it answers.

A fork ends with the process of Ray that asked for it, and with the fork server; the fork server ends with the process
that started it. Where trials compute on a GPU there is no fork server, as CUDA does not live through a fork; on other
systems than Linux and on a cluster there is none either. Processes of Ray then simulate themselves.

What is sent over the socket is unpickled. So the socket lies in a folder that only this user may enter.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import pickle
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from trainables.worker.job import Job

#: The socket and the log, in the private folder.
SOCKET, LOG = "forks", "forks.log"
#: What forks share.
_IMPORTS = ("trainables.simulated_trial", "trainables.registry")
#: Seconds that the fork server may take to end.
_ENDING = 5.0
#: Of `prctl`: the signal that a process is sent when the one ends that forked it.
_PARENT_DEATH = 1
#: How gladly the system ends a fork where memory is short, as Ray has it for its own processes.
_BADNESS = 1000


@contextlib.contextmanager
def started(folder: Path) -> Iterator[None]:
    """A fork server, until the block ends. folder: where its socket is to lie, which is for this user alone."""
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
            # One thread for as long as it only imports: a process that has several must not fork.
            env={
                **os.environ,
                **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            },
        )
    try:
        yield
    finally:
        assert server.stdin is not None
        server.stdin.close()
        try:
            server.wait(_ENDING)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def socket_in(folder: Path) -> str | None:
    """Where the fork server listens that was started beside this folder's Ray; None where none was."""
    return str(folder / SOCKET) if (folder / SOCKET).exists() else None


# -- the fork server -------------------------------------------------------------------------------------------------


def serve(descriptor: int) -> None:
    """Imports, and forks for every connection to the listening socket, until stdin ends."""
    for name in _IMPORTS:
        importlib.import_module(name)
    methods = importlib.import_module("trainables.methods")
    for found in pkgutil.iter_modules(methods.__path__, f"{methods.__name__}."):
        importlib.import_module(found.name)
    gc.collect()
    gc.freeze()  # a fork that looks through what is loaded would copy it
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a fork
    with socket.socket(fileno=descriptor) as listening:
        while select.select([listening, sys.stdin], [], [])[0] == [listening]:
            connection, _ = listening.accept()
            if not os.fork():
                listening.close()
                _host(Connection(connection.detach()))
            connection.close()
    os._exit(0)  # it holds nothing, and to take apart what was imported would keep the driver waiting


def _host(connection: Connection) -> NoReturn:
    """In a fork: simulates trials as it is asked to, and ends with the process that asks."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        with contextlib.suppress(OSError):
            ctypes.CDLL(None).prctl(_PARENT_DEATH, signal.SIGKILL)
            Path("/proc/self/oom_score_adj").write_text(str(_BADNESS))
        threading.Thread(target=_end_with, args=(connection.fileno(),), daemon=True).start()
        from trainables.simulated_trial import HostedTrials

        hosted = HostedTrials(_no_actor)
        while True:
            name, given = pickle.loads(connection.recv_bytes())
            connection.send_bytes(pickle.dumps(getattr(hosted, name)(*given)))
    except (EOFError, ConnectionError):
        code = 0
    except Exception:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _end_with(descriptor: int) -> NoReturn:
    """Ends this process when the other end of the connection is closed, in the middle of a round too: the trial may
    have to go on in another one."""
    gone = select.poll()
    gone.register(descriptor, 0)
    gone.poll()
    os._exit(0)


def _no_actor(*asked: Any) -> NoReturn:
    raise RuntimeError(f"{asked}: a fork sees the run directory, and has no actor to ask")


# -- who asks it -----------------------------------------------------------------------------------------------------


class ForkDied(RuntimeError):
    """The process of a trial ended."""


class ForkedTrial:
    """The `HostedTrials` of a new fork of the fork server at `address`. dumps: pickles a job.

    Raises `OSError` where the server is gone, and `ForkDied` from every method where the fork is."""

    def __init__(self, address: str, dumps: Callable[[Any], bytes]) -> None:
        self._dumps = dumps
        with socket.socket(socket.AF_UNIX) as connected:
            connected.connect(address)
            self._connection = Connection(connected.detach())

    def begin(self, job: Job, on_gpu: bool) -> None:
        """As `HostedTrials.begin`."""
        self._ask("begin", job, on_gpu)

    def step(self) -> dict[str, Any]:
        """As `HostedTrials.step`."""
        found: dict[str, Any] = self._ask("step")
        return found

    def release(self) -> None:
        """Ends the fork."""
        self._connection.close()

    def _ask(self, name: str, *given: Any) -> Any:
        try:
            self._connection.send_bytes(self._dumps((name, given)))
            return pickle.loads(self._connection.recv_bytes())
        except (EOFError, OSError) as error:
            raise ForkDied("the process of the trial ended") from error
