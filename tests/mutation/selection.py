"""Which tests are asked about a mutant: those that run its statement, the quickest first; where it leaves out a device,
those on another device before them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests import packed
from tests.mutation.mutant import Mutant
from tests.mutation.record import KEPT, key
from tests.mutation.targets import DEVICE, LAST

#: Seconds of tests that are asked at most about one mutant; one test is always asked.
BUDGET = 20.0


@dataclass(frozen=True)
class Kept:
    """What `record` wrote."""

    tests: list[tuple[str, float]]
    groups: list[list[int]]
    statements: dict[str, int]

    @staticmethod
    def read(path: Path = KEPT) -> Kept:
        found = packed.read(path)
        return Kept([(test, seconds) for test, seconds in found["tests"]], found["groups"], found["statements"])

    def asked(self, mutant: Mutant, source: str, budget: float = BUDGET) -> list[tuple[str, float]]:
        """The tests and their seconds. What stands at module level is asked by its file, what is not known by its
        function, then by its file; of a file that no test runs or imports the tests in `LAST` are asked."""
        if mutant.test:
            return [(mutant.test, dict(self.tests).get(mutant.test, budget))]
        text = source.splitlines()[mutant.statement - 1]
        names = [key(mutant.file, mutant.function, text), key(mutant.file, mutant.function, "")]
        for name in [*names, key(mutant.file, "", "")] if mutant.inside else [key(mutant.file, "", "")]:
            if name in self.statements:
                group = [self.tests[place] for place in self.groups[self.statements[name]]]
                break
        else:
            declared = [asked for asked in self.tests if asked[0].startswith(LAST)]
            group = [] if mutant.inside else sorted(declared, key=lambda asked: asked[1])
        if "device=" in mutant.old and "device=" not in mutant.new:  # on a CPU nothing differs
            group.sort(key=lambda asked: not asked[0].startswith(DEVICE))
        found: list[tuple[str, float]] = []
        for test, seconds in group:
            if not found or sum(s for _, s in found) + seconds <= budget:
                found.append((test, seconds))
        return found
