"""A few inputs of every kind, the same every time, keep the rule; and faults of every kind are seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.fuzz.campaign import Campaign, campaign, drive, replay
from tests.fuzz.case import Case, Change
from tests.fuzz.child import BYTES, Outcome
from tests.fuzz.judge import violations

#: Less than two minutes on one core: two batches of every kind.
INPUTS, SEED = 162, 18
SEVERAL = ("several methods", "reproductions")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    with campaign(tmp_path_factory.mktemp("kept")) as found:
        yield found


def test_the_rule_holds(made: Campaign) -> None:
    drive(made, INPUTS, SEED)
    print("\n".join(made.lines()))
    assert not made.found, "\n".join(f"{wrong} {case.words}" for case, wrong, _ in made.found)
    tried = {area: table.accepted + table.refused for area, table in made.tables.items()}
    assert set(tried) == {"command lines", "YAML files", "experiment.yaml", "data sets", "damaged runs", *SEVERAL}
    assert sum(tried.values()) == INPUTS
    assert sum(table.accepted for table in made.tables.values()) > INPUTS / 10


def test_a_fault_is_found_kept_and_tried_again(made: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedtune.api import catalogue

    def wrong(name: str | None = None) -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr(catalogue, "datasets", wrong)
    case = Case("command lines", ("datasets", "\x1b"), ("file",), (Change("x", "pipe"),))
    told = made.attempt(case)
    assert told == ["a traceback: RuntimeError: a bug"]
    [(_, _, place)] = made.found
    assert place is not None and replay(place)[0] == told
    monkeypatch.undo()
    assert replay(place)[0] == []


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
