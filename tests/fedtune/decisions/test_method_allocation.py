"""Which method the next trial goes to, and at which rounds methods are compared."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fedtune.decisions.early_stopping import Halving, LearningCurve
from fedtune.decisions.method_allocation import MethodTrial, levels, order, pooled, reaches, rule
from fedtune.decisions.shared_budget import Allocation
from tests.trials import frozen_trial

NAMES = ("cheap", "dear", "third")


def allocation(**changes: Any) -> Allocation:
    given: dict[str, Any] = {"costs": (1.0, 5.0, 1.0), "rounds": 10, "least": 2, "equal": False, "sign": 1.0}
    given |= {"prices": (1.0, 1.0, 1.0), "budget": 100.0}
    return Allocation(**given | changes)


def test_what_a_whole_trial_takes_of_the_budget_is_its_rounds_by_their_price() -> None:
    assert [allocation(costs=(1.0, 9.0), prices=(3.0, 0.5), rounds=4).whole(place) for place in (0, 1)] == [12.0, 2.0]


def seen(method: int, number: int, value: float, x: float, rounds: int = 10) -> MethodTrial:
    trial = frozen_trial(number, {"x": x}, value, curve={10: value}, rounds=rounds)
    return pooled(NAMES, method, number, trial)


def test_first_every_method_gets_its_minimum_in_turn() -> None:
    later: list[int] = []
    for expected in (0, 1, 2, 0, 1, 2):
        assert order(allocation(), [], later)[0] == expected
        later.append(expected)


def many(values: tuple[float, float, float]) -> list[MethodTrial]:
    """Four trials of each method, around a value of its own."""
    spots = [(k, method) for k in range(4) for method in range(3)]
    return [seen(m, n, values[m] + 0.02 * k, (k + 0.5) / 4) for n, (k, m) in enumerate(spots)]


def test_the_next_trial_goes_where_more_is_promised() -> None:
    assert order(allocation(costs=(1.0, 1.0, 1.0)), many((0.3, 0.8, 0.5)), [])[0] == 1
    assert order(allocation(costs=(1.0, 1.0, 1.0), sign=-1.0), many((0.3, 0.8, 0.5)), [])[0] == 0


def test_a_dear_method_must_promise_more() -> None:
    level = many((0.5, 0.5, 0.1))
    assert order(allocation(costs=(1.0, 1.01, 1.0)), level, [])[:2] == [0, 1]
    assert order(allocation(costs=(1.01, 1.0, 1.0)), level, [])[:2] == [1, 0]


def test_every_second_trial_goes_where_least_was_spent() -> None:
    known = [*many((0.3, 0.8, 0.5)), seen(1, 12, 0.8, 0.5)]
    assert order(allocation(costs=(1.0, 1.0, 1.0)), known, [])[0] == 0
    assert order(allocation(costs=(1.0, 1.0, 1.0)), known, [0])[0] == 1
    # The same trial while an earlier one still runs: its place decides, not what has ended.
    assert order(allocation(costs=(1.0, 1.0, 1.0)), many((0.3, 0.8, 0.5)), [1])[0] == 0


def test_equal_follows_what_was_spent() -> None:
    known = [seen(0, 0, 0.9, 0.5), seen(1, 1, 0.1, 0.5, rounds=3), seen(2, 2, 0.1, 0.5, rounds=8)]
    # Spent: 10, 15 and 8. A trial that may still run counts with all its ten rounds.
    assert order(allocation(equal=True), known, []) == [2, 0, 1]
    assert order(allocation(equal=True), known, [2]) == [0, 1, 2]


def test_rungs_lie_at_equal_cost() -> None:
    # The cheapest method's rungs, at rounds 3 and 9 and 27, cost 3, 9 and 27; two thirds of a dear trial cost 33.
    assert levels(allocation(), 3, 3) == [3.0, 9.0, 27.0]
    assert [reaches(level, 5.0) for level in (3.0, 9.0, 27.0)] == [1, 2, 6]


def curve(*values: float) -> dict[int, tuple[float]]:
    return {round_: (value,) for round_, value in enumerate(values, start=1)}


def test_a_dear_trial_is_compared_with_what_others_had_for_its_cost() -> None:
    known = [
        (0, LearningCurve(10, curve(*[k / 10 for k in range(1, 11)]))),  # ended for 10: counts with its last value, 1.0
        (0, LearningCurve(3, curve(0.1, 0.2, 0.3))),  # stopped for 3: not there
        (1, LearningCurve(6, curve(0.1, 0.1, 0.1, 0.1, 0.1, 0.4))),
        (2, LearningCurve(10, curve(*[0.9] * 10))),
    ]
    made = rule(allocation(), 1, known, 3, 3)
    assert made == Halving.of(3, {6: [(1.0,), (0.4,), (0.9,)]})
    # Of four, its own included, ceil(4 / 3) = 2 go on: it has to be better than all but one.
    assert not made.stops(6, curve(*[0.0] * 5, 0.95))
    assert made.stops(6, curve(*[0.0] * 5, 0.85))
    cheap = rule(allocation(), 0, known, 3, 3)
    # A cheap one at round 3, for a cost of 3: a dear one had that after its first round.
    assert cheap == Halving.of(3, {3: [(0.3,), (0.3,), (0.1,), (0.9,)]})


def test_what_is_not_finite_is_not_compared() -> None:
    made = rule(allocation(), 0, [(0, LearningCurve(10, curve(1.0, 1.0, math.nan)))], 3, 3)
    assert made == Halving.of(3, {3: []})


@pytest.mark.parametrize("place", range(3))
def test_methods_share_no_parameter(place: int) -> None:
    found = pooled(NAMES, place, 7, seen(0, 0, 0.5, 0.25).trial)
    assert found.trial.number == 7 and found.trial.params["method"] == NAMES[place]
    assert f"{NAMES[place]}.cheap.x" in found.trial.params
    assert set(found.trial.distributions["method"].choices) == set(NAMES)
