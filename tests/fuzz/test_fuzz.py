"""Inputs of every kind keep the rule; and faults of every kind are seen.

`make fuzz` sets how many inputs are drawn, and with which seed. A batch that fails is tried again by its name:

    FUZZ_INPUTS=5000 FUZZ_SEED=7 python -m pytest "tests/fuzz/test_fuzz.py::test_the_rule_holds[data sets 14]"
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.fuzz import child, damage, datasets, documents, scene, words
from tests.fuzz.case import Case, Change
from tests.fuzz.child import BYTES, Outcome
from tests.fuzz.judge import observe, violations

INPUTS, SEED = int(os.environ.get("FUZZ_INPUTS", "180")), os.environ.get("FUZZ_SEED", "18")
#: So many inputs are drawn with one seed: after its first ten, hypothesis makes most of them by repeating parts of
#: others.
BATCH = 10
#: The kinds, of which the first come more often.
KINDS = (
    *("command lines", "damaged runs") * 2,
    *("YAML files", "experiment.yaml", "data sets", "several methods", "reproductions"),
)


@dataclass
class Scene:
    """What inputs are made from, what is known of it, and what came of them."""

    folder: Path
    cache: Path
    truths: dict[tuple[str, ...], dict[str, Any]] = field(default_factory=dict)
    codes: Counter[int] = field(default_factory=Counter)

    def strategy(self, kind: str) -> st.SearchStrategy[Case]:
        """Inputs of a kind."""
        real = scene.documents(self.folder)
        made = (self.folder, real, self.truths)
        return {
            "command lines": words.lines,
            "YAML files": lambda: documents.files(real),
            "experiment.yaml": lambda: documents.experiments(real),
            "data sets": datasets.both,
            "damaged runs": lambda: damage.runs(*made),
            "several methods": lambda: damage.autos(*made),
            "reproductions": lambda: damage.reproductions(*made),
        }[kind]()

    def attempt(self, case: Case, here: Path) -> list[str]:
        """What is wrong with an input."""
        shutil.rmtree(here, ignore_errors=True)
        wrong, outcome = observe(case, here, self.folder, self.cache)
        self.codes[outcome.code] += 1
        return wrong


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """The scene, and what commands print of its undamaged folders. Of many inputs more than a tenth are accepted."""
    place = tmp_path_factory.mktemp("fuzz")
    found = Scene(scene.make(place / "scene", place / "cache"), place / "cache")
    child.preload()
    for number, (asked, (folder, fields)) in enumerate(damage.TRUE.items()):
        case = Case("truth", asked, (folder,))
        wrong, done = observe(case, place / f"truth-{number}", found.folder, found.cache)
        assert done.code == 0 and not done.reached and not wrong, f"fedtune {' '.join(asked)}: {done}"
        printed = json.loads(done.out)
        found.truths[asked] = {name: printed[name] for name in fields}
    yield found
    if found.codes.total() > INPUTS / 2:
        assert found.codes[0] > found.codes.total() / 10, found.codes


@pytest.mark.nightly
@pytest.mark.parametrize("batch", [f"{KINDS[n % len(KINDS)]} {n}" for n in range(-(-INPUTS // BATCH))])
def test_the_rule_holds(made: Scene, tmp_path: Path, batch: str) -> None:
    @seed(f"{SEED} {batch}")
    @settings(
        max_examples=BATCH,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(made.strategy(batch.rpartition(" ")[0]))
    def holds(case: Case) -> None:
        assert not made.attempt(case, tmp_path / "here")

    holds()


@pytest.mark.nightly
def test_a_fault_is_found(made: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedtune.api import catalogue

    def wrong(name: str | None = None) -> Any:
        raise RuntimeError("a bug")

    case = Case("command lines", ("datasets", "\x1b"), ("file",), (Change("x", "pipe"),))
    assert made.attempt(case, tmp_path / "here") == []
    monkeypatch.setattr(catalogue, "datasets", wrong)
    assert made.attempt(case, tmp_path / "here") == ["a traceback: RuntimeError: a bug"]


def judged(code: int, out: str = "", err: str = "", case: Case | None = None, **more: Any) -> list[str]:
    before = more.pop("before", {})
    outcome = Outcome(code, out, err, more.pop("seconds", 0.1), more.pop("grown", 0), more.pop("timed_out", False))
    return list(violations(case or Case("x", ("x",)), outcome, before, more.pop("after", before)))


@pytest.mark.parametrize(
    ("told", "faults"),
    [
        (judged(0, "fine"), ""),
        (judged(2, err="One sentence."), ""),
        (judged(0), "without a result"),
        (judged(2), "without a word"),
        (judged(1, err="Traceback (most recent call last):\nValueError: x"), "traceback: ValueError: x"),
        (judged(1, "failed"), "exit code 1"),
        (judged(-11), "exit code -11"),
        (judged(0, "fine", timed_out=True), "no end"),
        (judged(0, "fine", seconds=10.1), "no end"),
        (judged(0, "fine", grown=BYTES + 1), "MiB of memory"),
        (judged(2, err="a\x1b[2J"), "control characters"),
        (judged(2, err="x" * 3000), "3000 characters"),
        (judged(2, err="No.", before={"a": b"1"}, after={"a": b"2"}), "have changed: a"),
        (judged(2, err="No.", after={"a": "folder"}), "have changed: a"),
        (judged(0, "fine", after={"runs/.a.tmp": b""}), "left behind: runs/.a.tmp"),
        (judged(0, "fine", after={"report.html": b"<html>"}), "part of a page"),
        (judged(0, "{", case=Case("x", ("status", "--json"))), "no JSON"),
        (judged(0, '{"a": NaN}', case=Case("x", ("status", "--json"))), "NaN is no JSON"),
        (judged(0, '{"a": 1, "b": 2}', case=Case("x", ("status", "--json"), truth={"b": 2})), ""),
        (judged(0, '{"a": ["/x/auto/b"]}', case=Case("x", ("status", "--json"), truth={"a": ["/y/z/auto/b"]})), ""),
        (judged(0, '{"a": 1}', case=Case("x", ("status", "--json"), truth={"a": 2})), "not what the undamaged"),
    ],
)
def test_the_judge_sees(told: list[str], faults: str) -> None:
    assert (len(told) == 1 and faults in told[0]) if faults else told == []
