"""Which tests are asked about a mutant: those that run its statement, the quickest first."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.mutant import Mutant
from tests.mutation.record import KEPT, key

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
        found = json.loads(path.read_text(encoding="utf-8"))
        return Kept([(test, seconds) for test, seconds in found["tests"]], found["groups"], found["statements"])

    def asked(self, mutant: Mutant, source: str, budget: float = BUDGET) -> list[tuple[str, float]]:
        """The tests and their seconds. What stands at module level is asked by its file, what is not known by its
        function, then by its file."""
        if mutant.test:
            return [(mutant.test, dict(self.tests).get(mutant.test, budget))]
        text = source.splitlines()[mutant.statement - 1]
        names = [key(mutant.file, mutant.function, text), key(mutant.file, mutant.function, "")]
        for name in [*names, key(mutant.file, "", "")] if mutant.inside else [key(mutant.file, "", "")]:
            if name in self.statements:
                break
        else:
            return []
        found: list[tuple[str, float]] = []
        for test, seconds in (self.tests[place] for place in self.groups[self.statements[name]]):
            if not found or sum(s for _, s in found) + seconds <= budget:
                found.append((test, seconds))
        return found
