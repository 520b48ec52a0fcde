"""Tries many inputs and counts what came of them; keeps those that break the rule, so that each can be tried again."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

from tests.fuzz import child, damage, datasets, documents, judge, scene, several, words
from tests.fuzz.case import Case, copied, tree

#: So many inputs are made at a time: after its first ten, hypothesis makes most of them by repeating parts of others.
BATCH = 9
#: Commands whose answers are known: of which folder they are, and the fields that must be as they are undamaged.
TRUE = {("export", "run", "--json"): ("run", ("parameters",)), **several.TRUE}


@dataclass
class Table:
    """What came of the inputs of one area."""

    accepted: int = 0
    refused: int = 0
    slowest: float = 0.0
    largest: int = 0


@dataclass
class Campaign:
    """A scene, a place to work, and what has been found."""

    scene: Path
    work: Path
    cache: Path
    #: Where violating inputs are kept; None keeps none.
    keep: Path | None = None
    tables: dict[str, Table] = field(default_factory=dict)
    #: What commands print of undamaged folders, by their words: the fields that damage must not change.
    truths: dict[tuple[str, ...], dict[str, Any]] = field(default_factory=dict)
    #: What is wrong with which input, and where that is kept.
    found: list[tuple[Case, list[str], Path | None]] = field(default_factory=list)

    def strategies(self) -> list[st.SearchStrategy[Case]]:
        """Inputs of every area, to be tried in turn."""
        real = scene.documents(self.scene)
        return [
            words.lines(),
            words.lines(),
            documents.files(real),
            documents.experiments(real),
            datasets.both(),
            damage.runs(self.scene, real, self.truths),
            damage.runs(self.scene, real, self.truths),
            several.autos(self.scene, real, self.truths),
            several.reproductions(self.scene, real, self.truths),
        ]

    def attempt(self, case: Case) -> list[str]:
        """Tries one input; what is wrong."""
        place = self.work / "input"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        case.prepare(place / "here", self.scene)
        wrong, outcome = observe(case, place / "here", self.cache)
        table = self.tables.setdefault(case.area, Table())
        setattr(table, judge.verdict(outcome), getattr(table, judge.verdict(outcome)) + 1)
        table.slowest, table.largest = max(table.slowest, outcome.seconds), max(table.largest, outcome.grown)
        self.last = case, outcome
        if wrong:
            self.found.append((case, wrong, self._keep(case, wrong, outcome)))
        return wrong

    def _keep(self, case: Case, wrong: list[str], outcome: child.Outcome) -> Path | None:
        if self.keep is None:
            return None
        place = self.keep / f"{len(self.found):04d}"
        shutil.rmtree(place, ignore_errors=True)
        case.prepare(place / "here", self.scene)
        said = {"wrong": wrong, "out": outcome.out[-2000:], "err": outcome.err[-4000:]}
        (place / "case.json").write_text(json.dumps(case.to_json() | said, indent=1))
        return place

    def lines(self) -> Iterator[str]:
        """The table."""
        yield f"{'area':<18}{'tried':>7}{'refused':>9}{'accepted':>10}{'slowest':>10}{'most memory':>14}"
        total = Counter[str]()
        for area, table in sorted(self.tables.items()):
            tried = table.accepted + table.refused
            total.update(tried=tried, refused=table.refused, accepted=table.accepted)
            yield (
                f"{area:<18}{tried:>7}{table.refused:>9}{table.accepted:>10}{table.slowest:>8.1f} s"
                f"{table.largest / 2**20:>10,.0f} MiB"
            )
        yield f"inputs tried: {total['tried']}, refused: {total['refused']}, accepted: {total['accepted']}"
        yield f"violations: {len(self.found)}"


def observe(case: Case, here: Path, cache: Path) -> tuple[list[str], child.Outcome]:
    """Carries out a case whose folder is prepared; what is wrong, and what came of it."""
    before = tree(here)
    outcome = child.run(case, here, cache)
    after = before if case.homeless else tree(here)
    return list(judge.violations(case, outcome, before, after)), outcome


@contextmanager
def campaign(keep: Path | None = None, stage: Path | None = None) -> Iterator[Campaign]:
    """A campaign in a temporary folder. `stage`: where its scene is kept from one campaign to the next."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        place = Path(folder) if stage is None else stage
        if not (place / "scene").is_dir():
            scene.make(place / "scene", place / "cache")
        made = Campaign(place / "scene", Path(folder) / "work", place / "cache", keep)
        child.preload()
        _learn(made)
        yield made


def _learn(made: Campaign) -> None:
    """What commands print of undamaged folders; this also fills the data set's cache."""
    for number, (asked, (folder, fields)) in enumerate(TRUE.items()):
        place = made.work / f"truth-{number}"
        case = Case("truth", asked, (folder,))
        case.prepare(place, made.scene)
        done = child.run(case, place, made.cache)
        if done.code or done.reached:
            how = f"exit code {done.code}, {done.seconds:.0f} s{', until it was ended' * done.timed_out}"
            raise RuntimeError(f"The scene is not what it should be: fedtune {' '.join(asked)}: {how}\n{done.err}")
        printed = json.loads(done.out)
        made.truths[asked] = {name: printed[name] for name in fields}


def drive(made: Campaign, inputs: int, seed: int, told: Callable[[str], None] = print) -> None:
    """Tries so many inputs, the same for the same seed (and runs of the same scene)."""
    strategies, tried = made.strategies(), 0

    def attempt(case: Case) -> None:
        nonlocal tried
        tried += 1
        for text in made.attempt(case):
            line = " ".join(ascii(word)[1:-1][:60] for word in case.words)
            told(f"input {tried}: {text}  [fedtune {line}] {made.found[-1][2] or ''}")
        if tried % 100 == 0:
            told(f"{tried} of {inputs} inputs, {len(made.found)} violations")

    for batch in range(-(-inputs // BATCH)):
        _batch(
            strategies[batch % len(strategies)], attempt, min(BATCH, inputs - batch * BATCH), seed * 1_000_003 + batch
        )


def _batch(strategy: st.SearchStrategy[Case], attempt: Callable[[Case], None], many: int, seed: int) -> None:
    """Tries so many inputs. The first that hypothesis makes is always the simplest there is; it is left out."""
    first = True

    @seeded(seed)
    @settings(
        max_examples=many + 1,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def one(case: Case) -> None:
        nonlocal first
        if not first:
            attempt(case)
        first = False

    one()


def replay(place: Path) -> tuple[list[str], child.Outcome]:
    """Tries a kept input again."""
    data: dict[str, Any] = json.loads((place / "case.json").read_text())
    child.preload()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        here = Path(folder) / "here"
        shutil.copytree(place / "here", here, symlinks=True, copy_function=copied)
        return observe(Case.from_json(data), here, Path(folder) / "cache")
