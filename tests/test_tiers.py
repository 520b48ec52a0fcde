"""The tiers of the tests: which are slow, by what they took, and which a change touches."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import touched

from tests import tiers
from tests.tiers import Taken
from tests.trainables.methods.replays.mutants import MUTANTS

ROOT = Path(__file__).resolve().parents[1]
TESTS = {str(path.relative_to(ROOT)) for top in touched.TESTS for path in (ROOT / top).rglob("test_*.py")}


def test_a_shared_fixture_is_paid_by_all_that_use_it() -> None:
    first = Taken("a.py::first", 0.5, ["a.py::folder"], {"a.py::folder": 6.0})
    others = [Taken(f"a.py::test[{n}]", 0.5, ["a.py::folder"], {}) for n in range(3)]
    assert tiers.slow([first, *others], limit=2.1) == {}  # 0.5 + 6 / 4 = 2.0 each
    assert tiers.slow([first, *others], limit=1.9) == dict.fromkeys(
        ["a.py::first", *(test.test for test in others)], 2.0
    )


def test_where_the_others_are_slow_the_rest_would_pay_alone() -> None:
    quick = Taken("a.py::quick", 0.1, ["a.py::folder"], {"a.py::folder": 3.0})
    slow = Taken("a.py::slow", 5.0, ["a.py::folder"], {})
    # 0.1 + 3 / 2 is not slow, but once the other test is, this one makes the fixture for itself.
    assert tiers.slow([quick, slow], limit=2.0) == {"a.py::slow": 6.5, "a.py::quick": 3.1}


def test_a_fixture_made_by_two_processes_counts_once() -> None:
    tests = [Taken(f"{n}.py::t", 0.0, ["::tree"], {"::tree": seconds}) for n, seconds in enumerate((3.0, 5.0))]
    assert tiers.slow(tests, limit=1.9) == {"0.py::t": 2.0, "1.py::t": 2.0}  # (3 + 5) / 2 shared by two


def test_what_is_written_is_read_and_what_was_not_run_stays(tmp_path: Path) -> None:
    path = tmp_path / "durations.txt"
    path.write_text(
        "    9.0 tests/test_tiers.py::gone_on\n    9.0 tests/gone.py::t\n    9.0 a.py::quick\n", encoding="utf-8"
    )
    tiers.write([Taken("a.py::t[a b]", 12.34, [], {}), Taken("a.py::quick", 0.1, [], {})], path)
    expected = {"a.py": 0.1, "a.py::t[a b]": 12.3, "tests/test_tiers.py::gone_on": 9.0}
    assert tiers.recorded(path) == expected


@pytest.mark.parametrize(("strength", "most"), [(1, 4), (2, 9)])
def test_few_cases_hold_every_value_or_every_pair(strength: int, most: int) -> None:
    cases = [{"a": a, "b": b, "c": c} for a in range(3) for b in range(3) for c in range(2) if (a, b) != (2, 2)]
    kept = [cases[n] for n in tiers.covering(cases, strength)]
    assert len(kept) <= most
    for names in combinations("abc", strength):
        assert {tuple(case[n] for n in names) for case in kept} == {tuple(case[n] for n in names) for case in cases}


def test_a_value_of_every_case_goes_round_those_of_the_others() -> None:
    cases = [{"method": method, "executor": executor} for method in range(6) for executor in range(3)]
    kept = [cases[n] for n in tiers.covering(cases)]
    assert Counter(case["executor"] for case in kept) == {0: 2, 1: 2, 2: 2}


@pytest.mark.parametrize(
    ("seconds", "marks", "tier"),
    [
        (0.5, [], ""),
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


def test_make_test_runs_the_quick_tests() -> None:
    """As `make mutants QUICK=1` asks the same ones."""
    assert f"\nQUICK_ONES := {tiers.QUICK}\n" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_every_recorded_file_is_there() -> None:
    gone = {name.partition("::")[0] for name in tiers.recorded()} - TESTS
    assert not gone, "`make durations` records again what is slow"


@pytest.mark.parametrize(
    ("file", "test"),
    [
        ("tests/test_exact.py", "tests/test_exact.py"),
        ("analysis/figures/box.py", "tests/analysis/figures/test_box.py"),  # imports it
        ("search_spaces/errors.py", "tests/trainables/data/test_readers.py"),  # through other modules
        ("trainables/methods/qffl.py", "tests/contracts/test_methods.py"),  # reaches it by its name
        ("fedtune/commands/doctor.py", "tests/packaging/test_listing.py"),  # nothing imports it
        ("docs/auto.md", "tests/packaging/test_docs.py"),
        ("benchmarks/replay/cells.py", "benchmarks/tests/test_command.py"),  # through other modules
        ("benchmarks/replay/arms/serve.py", "benchmarks/tests/test_replay.py"),  # in a text that it runs
        ("benchmarks/recorded/search-quality.json.xz", "benchmarks/tests/test_documents.py"),  # which a module reads
    ],
)
def test_what_a_change_touches(file: str, test: str) -> None:
    found = touched.touched([file])
    assert test in found and set(found) < TESTS


def test_a_change_of_the_set_up_touches_everything() -> None:
    assert touched.touched(["pyproject.toml", "docs/auto.md"]) == ["tests"]
    assert touched.touched([]) == []
