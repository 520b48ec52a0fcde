"""Counts, and says what survived."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.mutation.mutant import Mutant
from tests.mutation.processes import Answer
from tests.mutation.results import NOTICED, Listed, Survivors
from tests.mutation.trials import DIFFERS

#: Per cent of the mutants that must be noticed.
THRESHOLD = 95.0


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
        if self.mutant.kind == "written":
            return self.answer["status"] == "killed" and bool(DIFFERS.search(self.answer["how"]))
        return self.answer["status"] in NOTICED


def score(tried: Sequence[Tried], survivors: Survivors) -> float:
    """Per cent noticed, of those that are not listed as equivalent."""
    counted = [t for t in tried if t.noticed or not getattr(survivors.of(t.mutant), "equivalent", False)]
    return 100 * sum(t.noticed for t in counted) / len(counted) if counted else 100.0


def table(tried: Sequence[Tried], survivors: Survivors) -> Iterable[str]:
    """A line per file, and one for all."""
    yield f"{'':48} {'tried':>6} {'killed':>7} {'over time':>10} {'survived':>9} {'equivalent':>11} {'score':>7}"
    files = sorted({t.mutant.file for t in tried})
    groups = [(file, [t for t in tried if t.mutant.file == file]) for file in files]
    for name, group in [*groups, ("all", list(tried))]:
        status = Counter(t.answer["status"] if t.noticed else "survived" for t in group)
        equal = sum(not t.noticed and getattr(survivors.of(t.mutant), "equivalent", False) for t in group)
        killed = status["killed"] + status["died"]
        yield (
            f"{name:48} {len(group):6} {killed:7} {status['timeout']:10} {status['survived']:9} {equal:11}"
            f" {score(group, survivors):6.1f}%"
        )


def lines_of(tried: Tried, listed: Listed | None) -> Iterable[str]:
    """A survivor: where it is, what it changes, why it may live."""
    m = tried.mutant
    why = {"untested": "no test runs it", "killed": f"killed otherwise: {tried.answer.get('how')}"}
    how = why.get(tried.answer["status"], "all tests pass")
    yield f"{m.file}:{m.line} {m.function or '(module)'}: {m.what or m.kind}; {how}"
    yield from (f"    {line}" for line in m.diff(tried.source).splitlines())
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
    made = [t for t in tried if t.mutant.kind != "written"]
    written = [t for t in tried if t.mutant.kind == "written"]
    if made:
        print("\n".join(table(made, survivors)))
    missed = [t for t in written if not t.noticed]
    print(f"Written by hand: {len(written) - len(missed)} of {len(written)} noticed by their replays.")
    alive = [t for t in made if not t.noticed]
    unlisted = [t for t in alive if survivors.of(t.mutant) is None]
    for title, group in (("Missed by their replays", missed), ("Survivors that are not listed", unlisted)):
        if group:
            print(f"\n{title}:")
        for t in group:
            print("\n".join(lines_of(t, None)))
    if listed := [t for t in alive if survivors.of(t.mutant) is not None]:
        print("\nListed survivors:")
        for t in listed:
            print("\n".join(lines_of(t, survivors.of(t.mutant))))
    if old := stale(made, survivors, existing):
        print("\nStale entries of survivors.toml:\n" + "\n".join(old))
    reached = score(made, survivors)
    if made:
        print(f"\n{reached:.1f} % of {len(made)} mutants noticed; {THRESHOLD:.0f} % are asked for.")
    return int(reached < THRESHOLD or bool(missed) or (not sampled and bool(unlisted or old)))
