"""Carries an input out in a process of its own, as the console script would, up to where Ray would start.

The process is forked from one that has imported all that a command imports, so an input takes about as long as its
own work. What would train for real is stopped at the plan: where Ray would be started, where the attack would begin and
where optuna-dashboard would be opened, the command has been accepted, and the run directory it made is read once.
"""

from __future__ import annotations

import contextlib
import errno
import io
import mmap
import os
import resource
import select
import signal
import socket
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from tests.fuzz.case import Case

#: The rule: seconds, and bytes beyond what the process holds at its start. The seconds are those that the processor
#: works; on the clock there are more, as other work may go on beside.
SECONDS, BYTES = 10.0, 1 << 30
_CLOCK = 60.0
#: So much address space may be asked for: beyond the rule, so that what is asked for and used is measured and told.
_SPACE = 6 << 30
#: What commands import when they are called.
_IMPORTS = (
    *(f"fedtune.api.{name}" for name in ("search", "run", "export", "status", "attack", "catalogue", "doctor")),
    *("fedtune.cli", "fedtune.commands._output", "fedtune.planning.plan", "fedtune.planning.pack_auto"),
    *("analysis.report", "trainables.registry", "trainables.simulation.rounds", "trainables.tune"),
    *("PIL.Image", "filelock", "optuna", "sklearn.datasets", "plotly.graph_objects", "rich.table"),
)
#: Said on stderr by `_Reached`.
REACHED = "accepted: here Ray would start"


class _Reached(BaseException):
    """The input was accepted, and what follows costs time."""


@dataclass(frozen=True)
class Outcome:
    """What came of an input."""

    #: Exit code; minus the signal's number where a signal ended it.
    code: int
    out: str
    err: str
    #: Of the processor.
    seconds: float
    #: Bytes in use at most, beyond those at its start.
    grown: int
    timed_out: bool = False

    @property
    def reached(self) -> bool:
        return REACHED in self.err


def preload() -> None:
    """Imports what commands import, and computes nothing: a process that has threads must not fork."""
    import importlib

    import torch

    torch.set_num_threads(1)
    for name in _IMPORTS:
        importlib.import_module(name)
    from trainables import registry

    registry.methods()


def run(case: Case, folder: Path, cache: Path) -> Outcome:
    """Carries `case` out in its prepared `folder`."""
    with contextlib.ExitStack() as stack:
        out, err = (stack.enter_context(open(folder.with_name(f"{folder.name}.{n}"), "w+b")) for n in ("out", "err"))
        begun = mmap.mmap(-1, 8)
        child = os.fork()
        if child == 0:
            begun.write(_resident().to_bytes(8, "little"))
            _carry_out(case, folder, cache, out.fileno(), err.fileno())
        timed_out = not _ended(child, _CLOCK)
        if timed_out:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
        _, status, usage = os.wait4(child, 0)
        seconds = usage.ru_utime + usage.ru_stime
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read(1 << 22).decode("utf-8", "backslashreplace"))
        grown = max(0, usage.ru_maxrss * 1024 - int.from_bytes(begun[:8], "little"))
        return Outcome(os.waitstatus_to_exitcode(status), texts[0], texts[1], seconds, grown, timed_out)


def _ended(child: int, seconds: float) -> bool:
    """Whether the process ends within so many seconds."""
    descriptor = os.pidfd_open(child)
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)


def _resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _carry_out(case: Case, folder: Path, cache: Path, out: int, err: int) -> NoReturn:
    code = 1
    try:
        os.setpgid(0, 0)
        _surround(case, folder, cache, out, err)
        _stop_at_the_plan()
        code = _call(case)
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        with contextlib.suppress(BaseException):
            sys.stderr.flush()
        os._exit(code & 0xFF)


def _surround(case: Case, folder: Path, cache: Path, out: int, err: int) -> None:
    """Directory, environment, limits and standard streams of the command."""
    os.chdir(folder)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + _SPACE, used + _SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (int(SECONDS) + 2,) * 2)
    os.environ.update(FEDTUNE_CACHE=str(cache), COLUMNS="160", BROWSER="true", HOME=str(folder))
    for name in ("FEDTUNE_METHODS", "RAY_ADDRESS"):
        os.environ.pop(name, None)
    target = os.open("/dev/full", os.O_WRONLY) if case.output == "full" else out
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(target, 1)
    os.dup2(err, 2)
    encoding = "ascii" if case.output == "ascii" else "utf-8"
    # As Python opens them at its start.
    sys.stdout = open(1, "w", encoding=encoding, errors="strict", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    if case.output == "closed":
        os.close(1)
        sys.stdout = None  # type: ignore[assignment]
    sys.argv = ["fedtune", *case.words]


def _call(case: Case) -> int:
    """The exit code of the command, as Python's own end would have it."""
    from fedtune.cli import main

    code, before = 0, set(_runs())
    try:
        main()
    except _Reached:
        sys.stdout = io.StringIO()  # what was printed so far is no result yet
        print(REACHED, file=sys.stderr)
        _read(set(_runs()) - before)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    if sys.stdout is not None:
        try:
            sys.stdout.flush()
        except Exception:
            traceback.print_exc()
            return 120
    return code


def _runs() -> list[Path]:
    from search_spaces import run_folder

    return [found.parent for found in Path.cwd().glob(f"**/{run_folder.EXPERIMENT}")]


def _read(runs: set[Path]) -> None:
    """Run directories that a command made and was about to drive are whole: other commands can read them."""
    from fedtune.api.status import status

    for run in runs:
        status(run)


def _stop_at_the_plan() -> None:
    """From here on raises `_Reached` where a command begins what costs time."""
    from fedtune.api import status
    from fedtune.machine import cluster
    from trainables.simulation.rounds import Simulation

    def reached(*_: Any, **__: Any) -> NoReturn:
        raise _Reached

    def unreachable(*_: Any, **__: Any) -> NoReturn:
        raise OSError(errno.ENETUNREACH, os.strerror(errno.ENETUNREACH))

    stops = ((cluster, "joined"), (Simulation, "exchange"), (Simulation, "leaks"), (status.subprocess, "Popen"))
    for place, name in stops:
        assert hasattr(place, name), f"{place} has no {name}, so nothing would be stopped there"
        setattr(place, name, reached)
    socket.getaddrinfo = unreachable  # nothing is downloaded
