"""Which tests are asked about a mutant: those that run its statement, the quickest first; where it leaves out a device,
those on another device before them, and about one that a person wrote its replay."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests import packed
from tests.mutation.mutant import Mutant
from tests.mutation.record import KEPT, key
from tests.mutation.targets import DEVICE, LAST
from tests.mutation.trials import Collected

#: Seconds of tests that are asked at most about one mutant; one test is always asked.
BUDGET = 20.0


#: A test and the seconds of processor time that it took.
Asked = tuple[str, float]


@dataclass(frozen=True)
class Kept:
    """What `record` wrote."""

    tests: list[Asked]
    groups: list[list[int]]
    statements: dict[str, int]

    @staticmethod
    def read(path: Path = KEPT) -> Kept:
        found = packed.read(path)
        return Kept([(test, seconds) for test, seconds in found["tests"]], found["groups"], found["statements"])

    def without(self, tests: Collection[str]) -> Kept:
        """What would have been written without these tests: a statement that no other runs is not known."""
        places = [place for place, (test, _) in enumerate(self.tests) if test not in tests]
        number = {place: n for n, place in enumerate(places)}
        groups = [[number[place] for place in group if place in number] for group in self.groups]
        known = {name: group for name, group in self.statements.items() if groups[group]}
        return Kept([self.tests[place] for place in places], groups, known)

    def of(self, mutant: Mutant, source: str) -> list[list[Asked]]:
        """The tests of the mutant's statement, of its function and of its file, as far as they are known; of what
        stands at module level those of its file. Where no test runs or imports the file, what stands there is asked of
        the tests in `LAST`."""
        text = source.splitlines()[mutant.statement - 1]
        names = [key(mutant.file, mutant.function, text), key(mutant.file, mutant.function, "")]
        names = [*names, key(mutant.file, "", "")] if mutant.inside else [key(mutant.file, "", "")]
        found = [self.groups[self.statements[name]] for name in names if name in self.statements]
        if found or mutant.inside:
            return [[self.tests[place] for place in group] for group in found]
        return [sorted((asked for asked in self.tests if asked[0].startswith(LAST)), key=lambda asked: asked[1])]

    def asked(self, mutant: Mutant, source: str, budget: float = BUDGET) -> list[Asked]:
        """The tests: those of the statement, or else of the function, or else of the file."""
        group = next(iter(self.of(mutant, source)), [])
        if "device=" in mutant.old and "device=" not in mutant.new:  # on a CPU nothing differs
            group = sorted(group, key=lambda asked: not asked[0].startswith(DEVICE))
        found: list[Asked] = []
        for test, seconds in group:
            if not found or sum(s for _, s in found) + seconds <= budget:
                found.append((test, seconds))
        return found

    def choose(
        self,
        mutants: Sequence[tuple[Mutant, str]],
        collect: Callable[[set[str]], Collected],
        *,
        budget: float = BUDGET,
    ) -> tuple[list[list[Asked]], list[str]]:
        """The tests to ask about each of these mutants, of which the texts of their files are given too, and the files
        of tests that cannot be collected. `collect` says which tests of some files there are.

        A test that was recorded and is not there any more is not asked; how many these are is said. A mutant that a
        person wrote is asked of its replay alone."""
        known: dict[str, float] = {}
        seconds = dict(self.tests)
        for mutant, source in mutants:
            if mutant.test:
                known[mutant.test] = seconds.get(mutant.test, budget)
            else:
                known |= {test: s for group in self.of(mutant, source) for test, s in group}
        found = collect({test.partition("::")[0] for test in known})
        gone = known.keys() - set(found.asked)
        if gone:
            print(f"{len(gone)} of {len(known)} tests are not there any more and are not asked: {min(gone)}, for one.")
            print("`python -m tests.mutation record` notes anew which tests run what.", flush=True)
        left = self.without(gone)
        asked = []
        for mutant, source in mutants:
            alone = [(mutant.test, known[mutant.test])] if mutant.test in known.keys() - gone else []
            asked.append(alone if mutant.test else left.asked(mutant, source, budget))
        return asked, found.broken
