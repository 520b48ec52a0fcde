"""Which tier a test belongs to, by how long it took when that was last recorded.

    make durations          runs all tests and writes `durations.txt`
    make test               what took less than `SLOW` seconds, or is new, and the replays of wrong steps written by
                            hand (`replays/mutants.py`), up to `NIGHT`: nothing else notices these
    make test-slow          what took longer, up to `NIGHT` seconds, and every test marked `guard`
    make test-nightly       the rest: what took longer still, and what other tests of a `covering` stand for

What a fixture of a whole module or session takes is shared among the tests that use it, as it would be made for one of
them alone: where most of these are slow, the others would pay for it, and are slow too.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tests.trainables.methods.replays.mutants import MUTANTS

#: Seconds that a test of `make test` may take, and those that one of continuous integration may take.
SLOW = 0.3
NIGHT = 6.0

KEPT = Path(__file__).with_name("durations.txt")


@dataclass(frozen=True)
class Taken:
    """What one test took itself, and which shared fixtures it used: their names and what those took, if made for it."""

    test: str
    seconds: float
    used: list[str]
    made: dict[str, float]


class Recorder:
    """Writes a line of JSON for each test into a file of this process in `folder`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / f"{os.getpid()}.jsonl"
        self.made: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        begun = time.perf_counter()
        result = yield
        if fixturedef.scope != "function":
            self.made[_name(fixturedef)] = self.made.get(_name(fixturedef), 0.0) + time.perf_counter() - begun
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.made = {}
        begun = time.perf_counter()
        result = yield
        seconds = time.perf_counter() - begun - sum(self.made.values())
        shared = [found[-1] for found in item._fixtureinfo.name2fixturedefs.values() if found[-1].scope != "function"]
        # One that a test asks for while it runs is not among its names.
        used = dict.fromkeys([*map(_name, shared), *self.made])
        taken = Taken(item.nodeid, round(seconds, 3), [*used], self.made)
        with self.file.open("a", encoding="utf-8") as out:
            out.write(json.dumps(asdict(taken)) + "\n")
        return result


def _name(fixture: pytest.FixtureDef[Any]) -> str:
    return f"{fixture.baseid}::{fixture.argname}"


def read(folder: Path) -> list[Taken]:
    """What all processes recorded in `folder`."""
    lines = [line for file in sorted(folder.glob("*.jsonl")) for line in file.read_text(encoding="utf-8").splitlines()]
    return [Taken(**json.loads(line)) for line in lines]


def slow(taken: Iterable[Taken], limit: float = SLOW) -> dict[str, float]:
    """The tests of more than `limit` seconds, and these. A shared fixture's seconds, on average over the processes that
    made it, are divided by the tests that use it and are not slow themselves."""
    tests = {test.test: test for test in taken}
    makings: dict[str, list[float]] = defaultdict(list)
    for test in tests.values():
        for name, seconds in test.made.items():
            makings[name].append(seconds)
    fixtures = {name: sum(seconds) / len(seconds) for name, seconds in makings.items()}
    found: dict[str, float] = {}
    while True:
        users = Counter(name for test in tests.values() if test.test not in found for name in test.used)
        costs = {
            test.test: test.seconds + sum(fixtures.get(name, 0.0) / users[name] for name in test.used)
            for test in tests.values()
            if test.test not in found
        }
        more = {test: round(seconds, 1) for test, seconds in costs.items() if seconds > limit}
        if not more:
            return found
        found |= more


def write(taken: Collection[Taken], path: Path = KEPT) -> None:
    """One line for each slow test, its seconds and its name, and one for the other tests of each file together. What
    was not run this time stays as it was, as long as its file is there."""
    found = slow(taken)
    rest: Counter[str] = Counter()
    for test in taken:
        if test.test not in found:
            rest[test.test.partition("::")[0]] += test.seconds
    run = {test.test for test in taken} | set(rest)
    known = {name: seconds for name, seconds in recorded(path).items() if name not in run and _file(name).is_file()}
    lines = [f"{seconds:7.1f} {name}\n" for name, seconds in sorted((known | found | rest).items())]
    path.write_text("".join(lines), encoding="utf-8")


def _file(name: str) -> Path:
    return KEPT.parents[1] / name.partition("::")[0]


def recorded(path: Path = KEPT) -> dict[str, float]:
    """Seconds of the slow tests by their names, and of the other tests of a file by its name."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return {name: float(seconds) for seconds, name in (line.split(maxsplit=1) for line in lines)}


def covering(cases: list[dict[str, Any]], strength: int = 1) -> list[int]:
    """The places of few of the cases, in which every value of every parameter occurs, of strength 2 every pair of
    values of two parameters that occurs at all. Among those that add as much, the one of the rarest values comes first,
    so that a value that must occur often goes round all values of the others."""
    parts = [
        set(combinations(sorted((name, repr(value)) for name, value in case.items()), min(strength, len(case))))
        for case in cases
    ]
    left = set().union(*parts)
    times: Counter[tuple[str, str]] = Counter()
    chosen: list[int] = []
    while left:
        best = max(
            set(range(len(cases))) - set(chosen),
            key=lambda n: (len(parts[n] & left), -sum(times[one] for part in parts[n] for one in part), -n),
        )
        chosen.append(best)
        left -= parts[best]
        times.update(one for part in parts[best] for one in part)
    return sorted(chosen)


def mark(items: Iterable[pytest.Item], known: dict[str, float]) -> None:
    """Marks the tests that are slow or nightly, by their recorded seconds and by what stands for them."""
    products: dict[tuple[Path, str], list[Any]] = defaultdict(list)
    alone = {step.node for step in MUTANTS}
    for item in items:
        guard = item.get_closest_marker("guard")
        seconds = known.get(item.nodeid, 0.0)
        if seconds > NIGHT and not guard:
            item.add_marker("nightly")
        elif (seconds > SLOW and item.nodeid not in alone) or guard:
            item.add_marker("slow")
        if item.get_closest_marker("covering"):
            products[item.path, item.nodeid.partition("[")[0]].append(item)
    for product in products.values():
        strength = product[0].get_closest_marker("covering").kwargs.get("strength", 1)
        kept = covering([item.callspec.params for item in product], strength)
        for place in set(range(len(product))).difference(kept):
            product[place].add_marker("nightly")


if __name__ == "__main__":
    write(read(Path(sys.argv[1])))
