"""Which files are mutated, and which tests are asked about a change of a file.

The tests of a file are found by names and imports: those in files that are named after it, the replays of a method or
of the methods that import a building block, those that import it, those of its room, for a method those that name it.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

from tests import tiers
from tests.mutation.operators import Mutant
from tests.trainables.methods.replays.mutants import REPLAYS

ROOT = Path(__file__).resolve().parents[2]

#: Patterns below the root of the files that are mutated.
FILES = (
    "trainables/building_blocks/*.py",
    "trainables/methods/*.py",
    "trainables/local.py",
    "trainables/generators/*.py",
    "trainables/kernels/*.py",
    "trainables/federation.py",
    "trainables/params.py",
    "trainables/method.py",
    "trainables/wire.py",
    "trainables/rng.py",
    "trainables/simulation/executors.py",
    "fedtune/decisions/*.py",
    "fedtune/execution/queue.py",
    "analysis/estimate/*.py",
    "search_spaces/dimension.py",
    "search_spaces/parameter.py",
    "search_spaces/space.py",
    "search_spaces/space_file.py",
    "search_spaces/space_entries.py",
)

#: Folders of tests that run in the process itself: one that starts another process does not see the mutant.
TESTS = ("tests/trainables", "tests/analysis/estimate", "tests/fedtune/decisions", "tests/fedtune/execution")
TESTS += ("tests/fedtune/planning", "tests/search_spaces")

#: Tests of these are asked about files of other names.
ALSO = {
    "fedtune/execution/queue.py": ["tests/fedtune/execution/test_outcome.py", "tests/fedtune/planning/test_plan.py"],
    "fedtune/decisions/history.py": ["tests/fedtune/execution/test_queue.py"],
    "fedtune/decisions/proposals.py": [
        "tests/fedtune/execution/test_queue.py",
        "tests/fedtune/decisions/test_race_proposals.py",
        "tests/fedtune/decisions/test_method_proposals.py",
    ],
    "fedtune/decisions/next_trial.py": [
        "tests/fedtune/execution/test_queue.py",
        "tests/fedtune/decisions/test_ask.py",
        "tests/fedtune/decisions/test_race_proposals.py",
    ],
    "trainables/federation.py": ["tests/trainables/simulation/test_rounds.py"],
    "trainables/local.py": ["tests/trainables/building_blocks/test_local.py"],
    "trainables/params.py": ["tests/trainables/building_blocks/test_params.py"],
    "trainables/rng.py": ["tests/trainables/building_blocks/test_params.py"],
}

#: What tests use that open queues by `tests/fedtune/queues.py`, though they do not import it.
OPENED = {"fedtune.execution.queue", "fedtune.decisions.history"}

#: The contracts, which hold every method to what it declares.
CONTRACTS = "tests/contracts"

#: The tests of every method on a device that is not the processor's.
DEVICE = "tests/contracts/test_pretend_device.py"

#: How pytest is told to run none that takes long.
QUICK = ("-m", "not slow and not nightly and not gpu")

#: Seconds of tests that are asked at most about one mutant.
BUDGET = 20.0

#: Arguments of pytest that name tests, and the seconds that they took when that was last recorded.
Group = tuple[list[str], float]


def files() -> list[str]:
    """The files that are mutated, as paths below the root with `/`."""
    found = {path.relative_to(ROOT).as_posix() for pattern in FILES for path in ROOT.glob(pattern)}
    return sorted(file for file in found if not file.endswith("__init__.py"))


def module_of(file: str) -> str:
    """`trainables/params.py` is imported as `trainables.params`."""
    return file.removesuffix(".py").replace("/", ".")


def groups(mutant: Mutant) -> list[Group]:
    """The tests that are asked about a mutant, group after group until one notices it: where a person wrote it, its
    replay; where it leaves out a device, the tests on another device first, and where it changes what a method
    declares, the contracts."""
    if mutant.test:
        return [([mutant.test], _seconds(mutant.test))]
    taken = 0.0
    asked = []
    for test in nearest_tests(mutant.file):
        taken += _seconds(test)
        if not asked or taken <= BUDGET:
            asked.append(([test, *QUICK], _seconds(test)))
    method = _method(mutant.file)
    named = ["-k", method] if method else []
    if method:
        asked.insert(len(asked) if mutant.function else 0, ([CONTRACTS, *QUICK, *named], 10.0))
    if "device=" in mutant.old and "device=" not in mutant.new:
        asked.insert(0, ([DEVICE, *QUICK, *named], 40.0))
    return asked


def nearest_tests(file: str) -> list[str]:
    """The test files, and the single replays, of a file: the nearest first, and of those as near the quickest."""
    near: dict[str, int] = {}
    for nearness, tests in enumerate(_nearer_first(file)):
        for test in tests:
            near.setdefault(test, nearness)
    return sorted(near, key=lambda test: (near[test], _seconds(test), test))


def _nearer_first(file: str) -> Iterator[list[str]]:
    path, method = Path(file), _method(file)
    every = _test_files()
    yield [test for test in every if Path(test).name in (f"test_{path.name}", f"test_replay_{path.name}")]
    yield ALSO.get(file, [])
    using = [method] if method else [name for name in REPLAYS if _imports(f"trainables/methods/{name}.py", file)]
    yield [_replay(name) for name in using]
    yield [test for test in every if _imports(test, file)]
    if method is None:
        yield [test for test in every if test.startswith(f"tests/{path.parent.as_posix()}/")]
    else:
        yield [test for test in every if f'"{method}"' in _text(test) and "/methods/" in test and "replay" not in test]


def _replay(method: str) -> str:
    """The replay of a method, all its cases."""
    file, _, test = REPLAYS[method].partition("[")[0].partition("::")
    return f"tests/trainables/methods/replays/test_replay_{file}.py::{test}"


def _method(file: str) -> str | None:
    """The name of the method that this file holds."""
    path = Path(file)
    return path.stem if path.parent.as_posix() == "trainables/methods" and path.stem in REPLAYS else None


@functools.cache
def _test_files() -> list[str]:
    """Those in `TESTS`; none that starts Ray, as its processes see no mutant."""
    paths = [path for folder in TESTS for path in sorted((ROOT / folder).rglob("test_*.py"))]
    found = [path.relative_to(ROOT).as_posix() for path in paths]
    return [file for file in found if "ray_cluster" not in _text(file)]


@functools.cache
def _text(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


def _imports(file: str, other: str) -> bool:
    """Whether a file imports another, or something from it."""
    return module_of(other) in _imported(file)


@functools.cache
def _imported(file: str) -> frozenset[str]:
    """The modules that a file imports, and what is taken from them."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(_text(file))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.update([node.module, *(f"{node.module}.{alias.name}" for alias in node.names)])
    return frozenset(found | OPENED if "tests.fedtune.queues" in found else found)


@functools.cache
def _recorded() -> dict[str, float]:
    return tiers.recorded()


def _seconds(test: str) -> float:
    """What the quick tests of a file took, or a test with all its cases, of which the quick ones are not recorded."""
    if "::" not in test:
        return _recorded().get(test, 0.0)
    return sum(s for name, s in _recorded().items() if name.partition("[")[0] == test.partition("[")[0]) or tiers.SLOW
