"""Tries mutants: are they noticed by one of the tests that are asked?

Each is tried in a fork of a process that has imported the libraries, as that takes longest, and nothing of ours: the
fork imports the changed text in place of the file's. A fork has a limit on its processor time, so that a busy machine
does not make an endless loop of a slow test, and on its memory, as a mutant may fill a list for ever.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest

from tests.mutation.operators import Mutant
from tests.mutation.selection import ROOT, Group, groups, module_of

#: A fork may take so many times the processor time of its tests, and so many seconds more for imports.
SLOWER, IMPORTS = 3.0, 30.0
#: A fork that waits instead of computing is ended after so many times its processor time.
PATIENCE = 6
#: A fork may take so much more memory than it started with, in bytes, and so many addresses at the least: processes of
#: a search in it map six GiB of libraries and stacks.
MEMORY, ADDRESSES = 2 * 2**30, 8 * 2**30

#: How pytest runs what is asked.
OPTIONS = ["-q", "-x", "-p", "no:cacheprovider", "-o", "addopts="]
#: What became of a mutant: its status, the test that killed it, and how.
Answer = dict[str, str]


@dataclass(frozen=True)
class Trial:
    """A mutant (None: nothing is changed), the text of its file, and the tests that are asked."""

    mutant: Mutant | None
    source: str
    groups: list[Group]

    @property
    def limit(self) -> float:
        """Seconds of processor time."""
        return IMPORTS + SLOWER * sum(seconds for _, seconds in self.groups)


def prepare() -> None:
    """Imports what takes long and is not ours; tests draw the same examples every time."""
    import hypothesis
    import numpy  # noqa: F401
    import optuna  # noqa: F401
    import pandas  # noqa: F401
    import ray.tune  # noqa: F401
    import safetensors.torch  # noqa: F401
    import scipy.stats  # noqa: F401
    import sklearn.datasets  # noqa: F401
    import torch

    torch.set_num_threads(1)
    hypothesis.settings.register_profile("mutation", derandomize=True, database=None)
    hypothesis.settings.load_profile("mutation")
    ours = [name for name in sys.modules if name.partition(".")[0] in ("trainables", "search_spaces", "fedtune")]
    assert not ours, f"{ours} must not be imported before the mutants are made"


def try_all(mutants: Sequence[tuple[Mutant, str]], workers: int) -> Iterator[tuple[Mutant, Answer]]:
    """Every mutant, given with the text of its file, and what became of it, in the order in which they end."""
    trials = [Trial(mutant, source, groups(mutant)) for mutant, source in mutants]
    for trial, answer in in_forks(trials, ask, workers):
        assert trial.mutant is not None
        yield trial.mutant, answer


def broken(killers: Iterable[str]) -> list[str]:
    """Of these tests, and of files and folders of tests, those that fail, or cannot be collected, without a mutant:
    what they say of one is worth nothing."""
    asked = [[killer] if "::" in killer else [killer, "--collect-only"] for killer in sorted(set(killers))]
    tests = [arguments[0] for arguments in asked if len(arguments) == 1]
    if tests and next(in_forks([Trial(None, "", [(tests, 600.0)])], ask, 1))[1]["status"] == "survived":
        asked = [arguments for arguments in asked if arguments[0] not in tests]
    trials = [Trial(None, "", [(arguments, 60.0)]) for arguments in asked]
    return [trial.groups[0][0][0] for trial, answer in in_forks(trials, ask, 2) if "killer" in answer]


# -- in a fork ---------------------------------------------------------------------------------------------------------


def ask(trial: Trial) -> Answer:
    """Runs the tests on the changed code until one fails."""
    if trial.mutant is not None:
        import_changed(trial.mutant, trial.source)
    found = _Found()
    for arguments, _ in trial.groups:
        status = pytest.main([*OPTIONS, *arguments], [found])
        if found.answer is not None:
            return found.answer
        if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            how = f"the tests cannot be collected: {status!r}"
            return {"status": "killed", "killer": arguments[0], "how": how}
    return {"status": "survived" if found.ran else "untested"}


class _Found:
    """A plugin of pytest that keeps the first failure and counts the tests that ran."""

    answer: Answer | None = None
    ran = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.ran += report.when == "call"
        if report.failed and self.answer is None:
            crash = getattr(report.longrepr, "reprcrash", None)
            how = " ".join(str(crash.message if crash is not None else report.longrepr).split())
            self.answer = {"status": "killed", "killer": report.nodeid, "how": how[:300]}


def import_changed(mutant: Mutant, source: str) -> None:
    """From now on the module is imported with the change; it must not have been imported yet."""
    assert module_of(mutant.file) not in sys.modules
    sys.meta_path.insert(0, _Finder(mutant, source))


class _Finder(MetaPathFinder):
    """Imports the mutant's module with the change; everything else as ever."""

    def __init__(self, mutant: Mutant, source: str) -> None:
        self.name, self.path, self.text = module_of(mutant.file), str(ROOT / mutant.file), mutant.apply(source)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        loader = _Loader(fullname, self.path)
        loader.text = self.text
        return spec_from_file_location(fullname, self.path, loader=loader)


class _Loader(SourceFileLoader):
    """Compiles the text it is given instead of the file's."""

    text: str

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.text, self.path, "exec")


# -- forks -------------------------------------------------------------------------------------------------------------


@dataclass
class _Fork:
    trial: Trial
    process: Any
    until: float
    folder: str


def in_forks(trials: Sequence[Trial], do: Callable[[Trial], Answer], workers: int) -> Iterator[tuple[Trial, Answer]]:
    """Every trial and its answer, in the order in which they end. One that is over its limit of seconds answers
    `{"status": "timeout"}`, one that ended without a word `{"status": "died"}`."""
    waiting, running = list(reversed(trials)), dict[Connection, _Fork]()
    while waiting or running:
        while waiting and len(running) < workers:
            ours, fork = _start(waiting.pop(), do)
            running[ours] = fork
        for heard in wait(list(running), timeout=0.5):
            assert isinstance(heard, Connection)
            fork = running.pop(heard)
            yield fork.trial, _end(fork, heard)
        for fork in running.values():
            if time.monotonic() > fork.until:
                _kill(fork)


def _start(trial: Trial, do: Callable[[Trial], Answer]) -> tuple[Connection, _Fork]:
    ours, theirs = multiprocessing.Pipe(duplex=False)
    folder = tempfile.mkdtemp(prefix="mutant-")
    process = multiprocessing.get_context("fork").Process(target=_answer, args=(trial, do, theirs, folder))
    process.start()
    theirs.close()
    return ours, _Fork(trial, process, time.monotonic() + PATIENCE * trial.limit, folder)


def _answer(trial: Trial, do: Callable[[Trial], Answer], theirs: Connection, folder: str) -> None:
    os.setsid()
    os.environ["PYTEST_DEBUG_TEMPROOT"] = folder
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = max(pages * resource.getpagesize() + MEMORY, ADDRESSES)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CPU, (int(trial.limit) + 1, int(trial.limit) + 3))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    theirs.send(do(trial))


def _kill(fork: _Fork) -> None:
    """The fork, and what it started: they are a group of their own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(fork.process.pid, signal.SIGKILL)


def _end(fork: _Fork, heard: Connection) -> Answer:
    try:
        answer = heard.recv()
    except EOFError:
        answer = None
    heard.close()
    _kill(fork)
    fork.process.join()
    shutil.rmtree(fork.folder, ignore_errors=True)
    if answer is not None:
        return answer
    over = -(fork.process.exitcode or 0) in (signal.SIGXCPU, signal.SIGKILL)
    return {"status": "timeout" if over else "died"}
