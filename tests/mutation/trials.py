"""Tries mutants: are they noticed by one of the tests that are asked?

First warm: a process that has collected all tests asked forks for every mutant, gives the living functions the mutant's
code and runs the tests. Then cold, in forks that have imported libraries only: mutants outside of functions, and those
that survived in functions that ran while importing or collecting, as what they returned then could be kept.

A test that fails by itself would kill every mutant: whatever killed one is run without a mutant as well.
"""

from __future__ import annotations

import gc
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from tests.mutation.mutant import Mutant
from tests.mutation.processes import Answer, in_forks
from tests.mutation.swap import Early, Living, Place, import_changed, living, swap
from tests.mutation.targets import ROOT

#: A fork may take so many times the processor time of its tests, and so many seconds more; in the cold for imports.
SLOWER, SPARE, IMPORTS = 3.0, 5.0, 30.0

#: How a replay says that numbers differ, and not that the changed code cannot run.
DIFFERS = re.compile(r"AssertionError: .*(differs by|and not)")

OPTIONS = ["-q", "-s", "-p", "no:cacheprovider", "-o", "addopts="]


@dataclass(frozen=True)
class Trial:
    """A mutant (None: nothing is changed), the text of its file, and the tests that are asked."""

    mutant: Mutant | None
    source: str
    tests: list[tuple[str, float]]

    @property
    def limit(self) -> float:
        """Seconds of processor time."""
        return SPARE + SLOWER * sum(seconds for _, seconds in self.tests)


#: Called with every mutant and its answer, as soon as there is one.
Tell = Callable[[Mutant, Answer], None]


def prepare() -> None:
    """Imports what takes long and is not ours; tests draw the same examples every time."""
    import hypothesis
    import numpy  # noqa: F401
    import optuna  # noqa: F401
    import pandas  # noqa: F401
    import plotly.graph_objects  # noqa: F401
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


# -- which tests there are ---------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Collected:
    """The tests that may be asked, and the files that cannot be collected. As a plugin of pytest it finds them."""

    asked: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.asked = [item.nodeid for item in session.items]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.broken.append(report.nodeid)


def collect(files: Iterable[str]) -> Collected:
    """The tests of these files as they are now; none of a file that is not there."""
    found = Collected()
    there = [file for file in sorted(files) if (ROOT / file).is_file()]
    if there:
        with _quiet():
            pytest.main([*OPTIONS, "--collect-only", *there], [found])
    return found


# -- warm --------------------------------------------------------------------------------------------------------------


class _Warm:
    """A pytest plugin: in place of running the tests, `loop` is called with those that were collected."""

    def __init__(self, loop: Callable[[dict[str, pytest.Item]], None]) -> None:
        self.loop = loop

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.loop({item.nodeid: item for item in session.items})
        return True


def warm(trials: Sequence[Trial], tell: Tell, workers: int) -> set[str]:
    """Tries mutants in living functions. An answer may be `unswapped`. Returns tests that fail without a mutant."""
    broken: set[str] = set()

    def loop(items: dict[str, pytest.Item]) -> None:
        sys.settrace(None)
        suspects: dict[str, float] = {}
        gc.collect()
        functions = living()
        gc.freeze()  # a collection in a fork would copy all of the memory that it shares

        def do(trial: Trial) -> Answer:
            return _run_items(trial, items, functions, early.places)

        for trial, answer in in_forks(trials, do, lambda t: t.limit, workers):
            assert trial.mutant is not None
            tell(trial.mutant, answer)
            suspects |= _suspects(trial, answer)
        alone = [Trial(None, "", [test]) for test in suspects.items() if test[0] in items]
        for trial, answer in in_forks(alone, do, lambda t: t.limit, workers):
            if answer["status"] != "survived":
                broken.add(trial.tests[0][0])

    files = sorted({test.partition("::")[0] for trial in trials for test, _ in trial.tests})
    with _quiet(), Early() as early:
        pytest.main([*OPTIONS, *files], [_Warm(loop)])
    return broken


def _run_items(trial: Trial, items: dict[str, pytest.Item], functions: Living, early: set[Place]) -> Answer:
    changed: set[Place] = set()
    if trial.mutant is not None and not (changed := swap(trial.mutant, trial.source, functions)):
        return {"status": "unswapped"}
    asked = [items[test] for test, _ in trial.tests if test in items]
    if not asked:
        return {"status": "untested"}
    for item, following in zip(asked, [*asked[1:], None], strict=True):
        for report in runtestprotocol(item, log=False, nextitem=following):
            if report.failed:
                return _killed(report)
    return {"status": "survived", "asked": len(asked), "early": bool(changed & early)}


# -- cold --------------------------------------------------------------------------------------------------------------


class _First:
    """A pytest plugin that keeps the first failure."""

    answer: Answer | None = None
    ran = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.ran += report.when == "call"
        if report.failed and self.answer is None:
            self.answer = _killed(report)


def cold(trials: Sequence[Trial], tell: Tell, workers: int) -> set[str]:
    """Tries mutants by importing the changed module. Returns tests that fail without a mutant."""
    suspects: dict[str, float] = {}
    broken: set[str] = set()
    for trial, answer in in_forks(trials, _run_pytest, lambda t: IMPORTS + t.limit, workers):
        assert trial.mutant is not None
        tell(trial.mutant, answer)
        suspects |= _suspects(trial, answer)
    alone = [Trial(None, "", [test]) for test in suspects.items()]
    for trial, answer in in_forks(alone, _run_pytest, lambda t: IMPORTS + t.limit, workers):
        if answer["status"] != "survived":
            broken.add(trial.tests[0][0])
    return broken


def _run_pytest(trial: Trial) -> Answer:
    if trial.mutant is not None:
        import_changed(trial.mutant, trial.source)
    if not trial.tests:
        return {"status": "untested"}
    first = _First()
    with _quiet():
        status = pytest.main([*OPTIONS, "-x", *(test for test, _ in trial.tests)], [first])
    if first.answer is not None:
        return first.answer
    if status == pytest.ExitCode.OK:
        return {"status": "survived", "asked": first.ran}
    if first.ran == 0 and status == pytest.ExitCode.NO_TESTS_COLLECTED:
        return {"status": "untested"}
    # The change cannot even be imported. Without a mutant this is found as well: the test then fails by itself.
    return {"status": "killed", "killer": trial.tests[0][0], "how": f"the tests cannot be collected: {status!r}"}


# -- both --------------------------------------------------------------------------------------------------------------


def _killed(report: Any) -> Answer:
    crash = getattr(report.longrepr, "reprcrash", None)
    how = " ".join(str(crash.message if crash is not None else report.longrepr).split())
    return {"status": "killed", "killer": report.nodeid, "how": how[:300]}


def _suspects(trial: Trial, answer: Answer) -> dict[str, float]:
    """The tests on which an answer rests."""
    if answer["status"] in ("timeout", "died"):
        return dict(trial.tests)
    return {test: seconds for test, seconds in trial.tests if test == answer.get("killer")}


class _quiet:
    """What pytest and the tests print goes nowhere."""

    def __enter__(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self.kept = os.dup(1), os.dup(2)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        os.close(nowhere)

    def __exit__(self, *_: object) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, kept in enumerate(self.kept, start=1):
            os.dup2(kept, number)
            os.close(kept)


def in_child(do: Callable[[], Any]) -> Any:
    """Runs it in a fork, so that what it imports is not imported here; what it returns comes back, as JSON has it."""

    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        code = 1
        try:
            os.close(reading)
            answer = json.dumps(do()).encode()
            os.write(writing, answer)
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        heard = pipe.read()
    _, status = os.waitpid(pid, 0)
    if status or not heard:
        raise RuntimeError(f"The process that tries mutants ended with status {status}.")
    return json.loads(heard)
