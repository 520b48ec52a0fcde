"""Runs jobs in forks of this process, some at a time, each with a limit on its processor time and memory.

A fork has everything imported that this process has, so it starts in milliseconds. The limit is of processor time, so
that a busy machine does not make an endless loop of a slow test.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
Answer = dict[str, Any]

#: A fork may take so much more memory than it started with, in bytes.
MEMORY = 2 * 2**30
#: Addresses that a fork has at the least, in bytes: processes of a search in it map six GiB of libraries and stacks.
ADDRESSES = 8 * 2**30
#: A fork that waits instead of computing is ended after so many times its processor time.
PATIENCE = 6


@dataclass
class _Fork:
    job: Any
    pid: int
    pipe: int
    until: float
    folder: str
    start: float = field(default_factory=time.monotonic)
    heard: bytes = b""


def in_forks(
    jobs: Iterable[T], do: Callable[[T], Answer], limit: Callable[[T], float], workers: int
) -> Iterator[tuple[T, Answer]]:
    """Every job and its answer, in the order in which they end. A job that is over its limit of seconds answers
    `{"status": "timeout"}`, one that ended without a word `{"status": "died"}`."""
    waiting, running = iter(jobs), dict[int, _Fork]()
    more = True
    while more or running:
        while more and len(running) < workers:
            job = next(waiting, None)
            if job is None:
                more = False
            else:
                fork = _start(job, do, limit(job))
                running[fork.pipe] = fork
        for pipe in select.select(list(running), [], [], 0.5)[0]:
            piece = os.read(pipe, 1 << 16)
            running[pipe].heard += piece
            if not piece:
                fork = running.pop(pipe)
                yield fork.job, _end(fork)
        for fork in [fork for fork in running.values() if time.monotonic() > fork.until]:
            _kill(fork.pid)


def _start(job: T, do: Callable[[T], Answer], seconds: float) -> _Fork:
    reading, writing = os.pipe()
    folder = tempfile.mkdtemp(prefix="mutant-")
    pid = os.fork()
    if pid:
        os.close(writing)
        return _Fork(job, pid, reading, time.monotonic() + PATIENCE * seconds, folder)
    code = 1
    try:
        os.setsid()
        os.close(reading)
        os.environ["PYTEST_DEBUG_TEMPROOT"] = folder
        _limit(seconds)
        answer = json.dumps(do(job)).encode()
        while answer:
            answer = answer[os.write(writing, answer) :]
        code = 0
    finally:
        os._exit(code)


def _limit(seconds: float) -> None:
    """Of processor time, and of memory: a mutant may fill a list for ever."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = max(pages * resource.getpagesize() + MEMORY, ADDRESSES)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 3))
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _kill(pid: int) -> None:
    """The fork, and what it started: they are a group of their own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _end(fork: _Fork) -> Answer:
    _kill(fork.pid)
    os.close(fork.pipe)
    _, status = os.waitpid(fork.pid, 0)
    shutil.rmtree(fork.folder, ignore_errors=True)
    seconds = round(time.monotonic() - fork.start, 2)
    if fork.heard:
        return {**json.loads(fork.heard), "seconds": seconds}
    over = os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL)
    return {"status": "timeout" if over else "died", "seconds": seconds}
