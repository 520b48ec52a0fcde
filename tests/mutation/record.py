"""Which tests run which statements: a pytest plugin that traces the mutated files, and what is kept of it.

What is kept names statements by their function and their text, not by their number, so that moving code leaves it
valid; what is no longer found is asked by its function, then by its file. A fixture that several tests share is run for
the first of them only, so what it runs is counted for every test that asks for it.
"""

from __future__ import annotations

import ast
import functools
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests import packed
from tests.mutation.targets import DEVICE, FOLDER, LAST, ROOT, TESTS, files, module_of

#: What is kept, in the repository.
KEPT = FOLDER / "tests.json.xz"
#: So many tests are kept of a statement, and so many of a file; one that takes longer than so many seconds is not.
MOST, OF_A_FILE, LONGEST = 60, 400, 30.0

#: Of a file, the lines that ran.
Lines = set[tuple[str, int]]


class Recorder:
    """The plugin. `ran` by test, `seconds` by test."""

    def __init__(self) -> None:
        self.paths = {str(ROOT / file): file for file in files()}
        self.now: Lines = set()
        self.ran: dict[str, Lines] = {}
        self.failed: set[str] = set()
        self.seconds: dict[str, float] = {}
        self.shared: dict[tuple[str, str], Lines] = defaultdict(set)

    def trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        file = self.paths.get(frame.f_code.co_filename)
        if file is None:
            return None
        self.now.add((file, frame.f_lineno))

        def line(frame: FrameType, event: str, argument: Any) -> Any:
            if event == "line":
                self.now.add((file, frame.f_lineno))
            return line

        return line

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """A test on Ray runs in other processes, which see no mutant, and cannot be run in a fork."""
        items[:] = [item for item in items if "ray_cluster" not in getattr(item, "fixturenames", ())]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self.now, start = set(), time.process_time()
        sys.settrace(self.trace)
        threading.settrace(self.trace)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
            self.seconds[item.nodeid] = time.process_time() - start
            if item.nodeid not in self.failed:
                self.ran[item.nodeid] = self.now
                for name in getattr(item, "fixturenames", ()):
                    self.ran[item.nodeid] |= self.shared.get((item.nodeid.partition("::")[0], name), set())

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Generator[None, Any, Any]:
        if fixturedef.scope == "function":
            return (yield)
        before, self.now = self.now, set()
        try:
            return (yield)
        finally:
            self.shared[request.node.nodeid.partition("::")[0], fixturedef.argname] |= self.now
            self.now |= before

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test that does not pass as things are, or is skipped, says nothing about a mutant."""
        if not report.passed:
            self.failed.add(report.nodeid)


def statements(tree: ast.Module) -> Iterator[tuple[int, int, int, str]]:
    """Of every statement: its first line, the first and last line of what it itself runs, and its function."""

    def walk(node: ast.AST, scope: list[str]) -> Iterator[tuple[int, int, int, str]]:
        for child in ast.iter_child_nodes(node):
            inner = scope
            if isinstance(child, ast.stmt):
                body = getattr(child, "body", None)
                last = body[0].lineno - 1 if body else child.end_lineno or child.lineno
                yield child.lineno, child.lineno, max(last, child.lineno), ".".join(scope)
                if isinstance(child, ast.FunctionDef | ast.ClassDef):
                    inner = [*scope, child.name]
            yield from walk(child, inner)

    yield from walk(tree, [])


def enclosing(source: str, line: int) -> tuple[int, str]:
    """The first line of the innermost statement that this line belongs to, and its function."""
    return max(
        ((first, function) for first, start, end, function in statements(ast.parse(source)) if start <= line <= end),
        default=(line, ""),
    )


def key(file: str, function: str, text: str) -> str:
    """The name of a statement."""
    return f"{file} | {function} | {' '.join(text.split())}"


def chosen(tests: set[str], seconds: dict[str, float], name: str) -> list[str]:
    """At most `MOST` for what `key` gave this name, for a file `OF_A_FILE`: first those of the file's own test files,
    then of test files that import it, then others, then `LAST`. What stands outside of functions in a method's file
    declares it, and the tests in `LAST` hold it to its word: there they are first.

    Each time the quickest first, and every test function once before one is asked with its second case. One on another
    device than the processor is kept in any case."""
    file, function, _ = name.split(" | ", 2)
    turns: dict[str, int] = defaultdict(int)
    order = []
    for test in sorted(tests, key=lambda t: (seconds[t], t)):
        case_of = test.partition("[")[0]
        turns[case_of] += 1
        order.append((_rank(test, file, function), turns[case_of], seconds[test], test))
    every = [test for *_, test in sorted(order)]
    most = MOST if function else OF_A_FILE
    return every[:most] + [test for test in every[most:] if test.startswith(DEVICE)][:1]


def _rank(test: str, file: str, function: str) -> int:
    """Tests of a lower rank are asked first."""
    last = test.startswith(LAST)
    if last and not function and file.startswith("trainables/methods/"):
        return 0
    if _own(test, file):
        return 1
    if module_of(file) in imported(test.partition("::")[0]):
        return 2
    return 4 if last else 3


@functools.cache
def imported(path: str) -> frozenset[str]:
    """The modules, and what is taken from them, that a test file imports; nothing of a file that is not there."""
    if not (ROOT / path).is_file():
        return frozenset()
    found: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.update([node.module, *(f"{node.module}.{alias.name}" for alias in node.names)])
    return frozenset(found)


def _own(test: str, file: str) -> bool:
    """Whether the test's file is named after the file: `test_dfrd.py`, `test_replay_dfrd.py` after `dfrd.py`."""
    name = Path(file).name
    return Path(test.partition("::")[0]).name in (f"test_{name}", f"test_replay_{name}")


@dataclass
class Known:
    """Tests by statement, by function (empty text) and by file (empty function and text), those included that only
    import it; and their seconds."""

    places: dict[str, set[str]]
    seconds: dict[str, float]


def gathered(recorder: Recorder) -> Known:
    """What was seen."""
    by_line: dict[tuple[str, int], set[str]] = defaultdict(set)
    quick = [test for test in recorder.ran if recorder.seconds[test] <= LONGEST]
    for test in quick:
        for place in recorder.ran[test]:
            by_line[place].add(test)
    found: dict[str, set[str]] = defaultdict(set)
    for file in files():
        source = (ROOT / file).read_text(encoding="utf-8")
        text = source.splitlines()
        for first, start, end, function in statements(ast.parse(source)):
            tests = set().union(*(by_line[file, line] for line in range(start, end + 1)))
            if function and tests:
                for name in (key(file, function, text[first - 1]), key(file, function, "")):
                    found[name] |= tests
            found[key(file, "", "")] |= tests
        # What only declares may be held to its word by a test that runs no function of it.
        found[key(file, "", "")] |= {test for test in quick if module_of(file) in imported(test.partition("::")[0])}
    seconds = {test: round(recorder.seconds[test], 3) for test in recorder.ran}
    return Known({name: tests for name, tests in found.items() if tests}, seconds)


def read(path: Path = KEPT) -> Known:
    """What was kept."""
    kept = packed.read(path)
    names = [test for test, _ in kept["tests"]]
    groups = [{names[number] for number in group} for group in kept["groups"]]
    return Known({name: groups[group] for name, group in kept["statements"].items()}, dict(kept["tests"]))


def joined(before: Known, now: Known, again: set[str]) -> Known:
    """What was kept, with what was seen now in place of the tests of the files `again`."""
    places = {n: {t for t in tests if t.partition("::")[0] not in again} for n, tests in before.places.items()}
    for name, tests in now.places.items():
        places[name] = places.get(name, set()) | tests
    return Known({name: tests for name, tests in places.items() if tests}, before.seconds | now.seconds)


def write(known: Known, path: Path = KEPT) -> None:
    """Statements that the same tests run share one list of them."""
    found = {name: chosen(tests, known.seconds, name) for name, tests in sorted(known.places.items())}
    tests = sorted({test for group in found.values() for test in group})
    number = {test: place for place, test in enumerate(tests)}
    groups: dict[tuple[int, ...], int] = {}
    places = {name: groups.setdefault(tuple(number[t] for t in group), len(groups)) for name, group in found.items()}
    seconds = [[test, known.seconds[test]] for test in tests]
    packed.write(path, {"tests": seconds, "groups": [*groups], "statements": places})


def record(paths: list[str]) -> int:
    """Runs the tests and keeps what they run; pytest's exit status. With `paths` the rest stays as it was kept."""
    recorder = Recorder()
    given = ["-q", "-p", "no:cacheprovider", "-o", "addopts=", "-m", "not gpu and not nightly", *(paths or TESTS)]
    status = pytest.main(given, [recorder])
    now = gathered(recorder)
    write(joined(read(), now, {test.partition("::")[0] for test in recorder.seconds}) if paths else now)
    return int(status)
