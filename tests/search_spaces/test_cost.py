"""Marks of a space file: what they say of a round's cost, how they are kept, and which ones are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from search_spaces import cost
from search_spaces.dimension import Dimension
from search_spaces.parameter import Parameter
from search_spaces.space import Space
from tests.search_spaces.test_space_file import Declared, load, problems

FILE = "method: m\nsearch:\n"


def test_a_file_marks_what_a_round_costs(tmp_path: Path, declared: Declared) -> None:
    text = "  rate: {}\n  steps: {low: 5, high: 50, cost: 0.6}\n  rho: {grid: [40, 0, 20], cost: 0.3}\n"
    space = load(tmp_path, FILE + text, declared)
    assert {key: d.cost for key, d in space.search.items()} == {"rate": None, "steps": 0.6, "rho": 0.3}
    assert list(cost.marked(space.search)) == ["steps", "rho"]
    assert [d.describe() for d in space.search.values()] == [
        "[0.001, 0.3] log",
        "[5, 50] log, cost 0.6",
        "[0, 40], grid of 3, cost 0.3",
    ]
    # The dearest round is 1. Of it 0.1 stays, 0.6 goes with steps / 50 and 0.3 with rho / 40.
    for steps, rho in ((50, 40), (5, 0), (20, 10)):
        values = {"rate": 0.01, "steps": steps, "rho": rho}
        assert cost.of_a_round(space.search, values) == pytest.approx(0.1 + 0.6 * steps / 50 + 0.3 * rho / 40)


def test_where_nothing_is_marked_every_round_costs_the_same(tmp_path: Path, declared: Declared) -> None:
    space = load(tmp_path, FILE + "  steps: {}\n", declared)
    assert cost.marked(space.search) == {} and cost.problem(space.search, "here") is None
    assert {cost.of_a_round(space.search, {"steps": steps}) for steps in (5, 100)} == {1.0}


def test_a_mark_survives_json(tmp_path: Path, declared: Declared) -> None:
    space = load(tmp_path, FILE + "  steps: {low: 5, high: 50, cost: 0.6}\n  alpha: {}\n", declared)
    data = json.loads(json.dumps(space.to_json()))
    assert [item["cost"] for item in data["search"]] == [0.6, None] and Space.from_json(data) == space


@pytest.mark.parametrize("written", ["true", "'0.5'", "0", "-1", "1.5", ".nan", ".inf", "linear", "[0.5]", ""])
def test_a_mark_is_a_part_of_the_cost(tmp_path: Path, declared: Declared, written: str) -> None:
    (found,) = problems(tmp_path, FILE + f"  steps: {{low: 5, high: 50, cost: {written}}}\n", declared)
    must = "a number above 0 and at most 1, the part of a round's cost that is in proportion to it"
    assert found.startswith(f"cost of steps must be {must}, got ") and found.endswith("(space.yaml, line 3).")


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        (
            "  steps: {cost: 0.7}\n  even: {cost: 0.4}\n",
            "costs of steps and even must be at most 1 together, the whole cost of a round, got 1.1 "
            "(space.yaml, line 2). Lower them.",
        ),
        (
            "  rho: {cost: 1}\n",
            "cost of rho must be below 1, as a round with rho 0 would cost nothing, got 1 (space.yaml, line 2). "
            "Lower it a little.",
        ),
        (
            "  open_: {low: -1, high: 1, cost: 0.5}\n",
            "search of open must be from 0 or more to more than 0, as its cost is marked, got -1 to 1 "
            "(space.yaml, line 2). Narrow it, or leave its cost out.",
        ),
        (
            "  rho: {low: 0, high: 0, cost: 0.5}\n",
            "search of rho must be from 0 or more to more than 0, as its cost is marked, got 0 to 0 "
            "(space.yaml, line 2). Narrow it, or leave its cost out.",
        ),
        (
            "  merge_op: {options: [mul, add], cost: 0.5}\n",
            "Unknown key 'cost' of merge_op (space.yaml, line 3). It takes options.",
        ),
        (
            "  kind: {options: {a: {width: {cost: 0.5}}, c: }}\n",
            "width belongs to an option of kind and cannot be marked with a cost, as nothing says what the other "
            "options cost (space.yaml, line 3). Leave its cost out.",
        ),
    ],
)
def test_marks_that_say_no_cost_are_refused(tmp_path: Path, declared: Declared, entries: str, said: str) -> None:
    assert problems(tmp_path, FILE + entries, declared) == [said]


def test_a_condition_takes_no_mark(tmp_path: Path, declared: Declared) -> None:
    (found,) = problems(tmp_path, FILE + "  alpha: {}\nvary:\n  rho: {grid: [1, 2], cost: 0.5}\n", declared)
    assert "cost" in found and "rho" in found and "space.yaml, line 5" in found


def test_parts_that_add_up_to_one_may_be_rounded() -> None:
    parts = (0.1, 0.2, 0.3, 0.4)
    search = {
        f"x{i}": Dimension(Parameter(f"x{i}", "real", 1.0, "", low=0.0, high=2.0), 1.0, 2.0, cost=part)
        for i, part in enumerate(parts)
    }
    assert cost.problem(search, "here") is None
    assert cost.of_a_round(search, dict.fromkeys(search, 1.0)) == pytest.approx(0.5)
