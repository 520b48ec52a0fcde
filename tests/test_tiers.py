"""The tiers of the tests: which are slow, by what they took, and which a change touches."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import tiers
from tests.trainables.methods.replays.mutants import MUTANTS

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(("strength", "most"), [(1, 4), (2, 9)])
def test_few_cases_hold_every_value_or_every_pair(strength: int, most: int) -> None:
    cases = [{"a": a, "b": b, "c": c} for a in range(3) for b in range(3) for c in range(2) if (a, b) != (2, 2)]
    kept = [cases[n] for n in tiers.covering(cases, strength)]
    assert len(kept) <= most
    for names in combinations("abc", strength):
        assert {tuple(case[n] for n in names) for case in kept} == {tuple(case[n] for n in names) for case in cases}


@pytest.mark.parametrize(
    ("seconds", "marks", "tier"),
    [
        (0.3, [], ""),
        (0.0, [], ""),
        (3.0, [], "slow"),
        (30.0, [], "nightly"),
        (30.0, ["guard"], "slow"),
        (0.1, ["guard"], "slow"),
    ],
)
def test_a_tier_by_seconds(seconds: float, marks: list[str], tier: str, request: pytest.FixtureRequest) -> None:
    item = pytest.Function.from_parent(request.node.parent, name="of_a_tier", callobj=lambda: None)
    for mark in marks:
        item.add_marker(mark)
    tiers.mark([item], {item.nodeid: seconds})
    assert {mark.name for mark in item.iter_markers()} & {"slow", "nightly"} == ({tier} if tier else set())


@pytest.mark.parametrize(("seconds", "tier"), [(3.0, []), (30.0, ["nightly"])])
def test_a_replay_that_alone_notices_a_wrong_step_protects_a_change(seconds: float, tier: list[str]) -> None:
    marks: list[str] = []
    replay: Any = SimpleNamespace(
        nodeid=MUTANTS[0].node, add_marker=marks.append, get_closest_marker=lambda mark: mark in marks
    )
    tiers.mark([replay], {replay.nodeid: seconds})
    assert marks == tier


def test_a_fixture_that_a_test_asks_for_while_it_runs_is_paid_by_that_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards the seconds of a page of the guides from whose folder other pages go on."""
    recorder = tiers.Recorder(tmp_path / "seconds")
    item: Any = SimpleNamespace(nodeid="test_page", _fixtureinfo=SimpleNamespace(name2fixturedefs={}))
    monkeypatch.setattr(tiers, "time", SimpleNamespace(perf_counter=iter([0.0, 7.0]).__next__))
    running = recorder.pytest_runtest_protocol(item)
    next(running)
    recorder.made["tests::started"] = 5.0
    with pytest.raises(StopIteration):
        running.send(None)
    assert tiers.slow(tiers.read(tmp_path / "seconds")) == {"test_page": 7.0}
