"""Counts what was noticed, and says what survived."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.mutation.operators import Mutant
from tests.mutation.trials import Answer

#: Per cent of the mutants that have to be noticed.
THRESHOLD = 95.0

#: How a replay says that numbers differ, and not that the changed code cannot run.
DIFFERS = re.compile(r"AssertionError: .*(differs by|and not)")


@dataclass(frozen=True)
class Listed:
    """A survivor that a person has looked at. `equivalent`: the change changes nothing that can be seen."""

    file: str
    function: str
    line: str
    change: str
    reason: str
    equivalent: bool = False

    def means(self, mutant: Mutant) -> bool:
        """Every equal change of equal lines of the function is meant."""
        found = (mutant.file, mutant.function, mutant.text, mutant.change)
        return (self.file, self.function, self.line, self.change) == found


@dataclass(frozen=True)
class Survivors:
    """`survivors.toml`."""

    listed: list[Listed] = field(default_factory=list)

    @staticmethod
    def read() -> Survivors:
        text = Path(__file__).with_name("survivors.toml").read_text(encoding="utf-8")
        rows = tomllib.loads(text)["survivor"]
        return Survivors([Listed(**row) for row in rows])

    def of(self, mutant: Mutant) -> Listed | None:
        return next((listed for listed in self.listed if listed.means(mutant)), None)


@dataclass(frozen=True)
class Tried:
    """A mutant, the text of its file, and what became of it."""

    mutant: Mutant
    source: str
    answer: Answer

    @property
    def noticed(self) -> bool:
        """By its replay a written one is noticed only where a number differs, not because the changed code cannot
        run."""
        if self.mutant.test:
            return self.answer["status"] == "killed" and bool(DIFFERS.search(self.answer["how"]))
        return self.answer["status"] in ("killed", "timeout", "died")


def score(tried: Sequence[Tried], survivors: Survivors) -> float:
    """Per cent noticed, of those that are not listed as equivalent."""
    counted = [t for t in tried if t.noticed or not getattr(survivors.of(t.mutant), "equivalent", False)]
    return 100 * sum(t.noticed for t in counted) / len(counted) if counted else 100.0


def lines_of(tried: Tried, listed: Listed | None) -> Iterator[str]:
    """A survivor: where it is, what it changes, why it may live."""
    mutant = tried.mutant
    why = {"untested": "no test runs it", "killed": f"killed otherwise: {tried.answer.get('how')}"}
    how = why.get(tried.answer["status"], "all tests pass")
    yield f"{mutant.file}:{mutant.line} {mutant.function or '(module)'}: {mutant.what or mutant.kind}; {how}"
    yield from (f"    {line}" for line in mutant.diff(tried.source))
    if listed is not None:
        yield f"    {'equivalent' if listed.equivalent else 'does not matter'}: {listed.reason}"


def stale(tried: Sequence[Tried], survivors: Survivors, existing: Iterable[Mutant]) -> list[str]:
    """Entries of the list that name nothing any more, or a mutant that is noticed."""
    existing = list(existing)
    found = []
    for listed in survivors.listed:
        name = f"{listed.file} {listed.function}: {listed.change}"
        of_it = [t for t in tried if listed.means(t.mutant)]
        if not any(listed.means(mutant) for mutant in existing):
            found.append(f"{name}: there is no such mutant; remove it from survivors.toml")
        elif of_it and all(t.noticed for t in of_it):
            found.append(f"{name}: it is noticed now; remove it from survivors.toml")
    return found


def report(tried: Sequence[Tried], survivors: Survivors, existing: Iterable[Mutant], *, sampled: bool) -> int:
    """Prints all of it. 1 where too few were noticed or a written mutant was not; without a sample also where a
    survivor is not listed, or the list is stale."""
    made = [t for t in tried if not t.mutant.test]
    written = [t for t in tried if t.mutant.test]
    missed = [t for t in written if not t.noticed]
    print(f"Written by hand: {len(written) - len(missed)} of {len(written)} noticed by their replays.")
    alive = [(t, survivors.of(t.mutant)) for t in made if not t.noticed]
    unlisted = [(t, listed) for t, listed in alive if listed is None]
    titled = {
        "Missed by their replays": [(t, None) for t in missed],
        "Survivors that are not listed": unlisted,
        "Listed survivors": [(t, listed) for t, listed in alive if listed is not None],
    }
    for title, group in titled.items():
        if group:
            print("\n".join([f"\n{title}:", *(line for t, listed in group for line in lines_of(t, listed))]))
    if old := stale(made, survivors, existing):
        print("\nStale entries of survivors.toml:\n" + "\n".join(old))
    reached = score(made, survivors)
    if made:
        print(f"\n{reached:.1f} % of {len(made)} mutants noticed; {THRESHOLD:.0f} % are asked for.")
    return int(reached < THRESHOLD or bool(missed) or (not sampled and bool(unlisted or old)))
