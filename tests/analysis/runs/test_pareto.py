"""The front, its knee and its hypervolume, against definitions written out."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from optuna.trial import FrozenTrial, TrialState, create_trial

from analysis.runs import pareto


def boxes(points: list[tuple[Fraction, ...]]) -> Fraction:
    """The volume of the union of boxes from 0 to each point, by inclusion and exclusion."""
    total = Fraction(0)
    for count in range(1, len(points) + 1):
        for some in itertools.combinations(points, count):
            corner = [min(axis) for axis in zip(*some, strict=True)]
            volume = Fraction(1)
            for side in corner:
                volume *= side
            total += (-1) ** (count + 1) * volume
    return total


def test_the_front_has_what_no_other_point_beats() -> None:
    points = np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 1.0], [2.0, 4.0], [3.0, 1.0], [0.0, 0.0]])
    assert pareto.front(points) == [1, 2, 4]
    assert pareto.front(pareto.signed([(1, 5), (2, 5), (3, 1)], ["maximize", "minimize"])) == [2]


def test_a_front_of_trials_is_of_those_that_completed() -> None:
    """A trial that was stopped is on none, whatever its values; nor is one with a value that is no number."""

    def trial(number: int, values: list[float] | None, state: TrialState = TrialState.COMPLETE) -> FrozenTrial:
        made = create_trial(state=state, values=values)
        made.number = number
        return made

    trials = [trial(0, [1.0, 5.0]), trial(1, [3.0, 1.0]), trial(4, [9.0, math.inf]), trial(7, [0.5, 5.0])]
    stopped = trial(2, None, TrialState.PRUNED)
    assert pareto.front_of_trials([*trials, stopped], ["maximize", "maximize"]) == [0, 1]
    assert pareto.front_of_trials([*trials, stopped], ["minimize", "maximize"]) == [7]
    stopped.values = [9.0, 9.0]
    assert pareto.front_of_trials([*trials, stopped], ["maximize", "maximize"]) == [0, 1]
    assert pareto.front_of_trials([stopped], ["maximize", "maximize"]) == []


def test_the_knee_gives_up_least_for_what_it_gains() -> None:
    """Scaled over the front the sums are 1, 1.4, 1."""
    front = pareto.signed([(0.0, 10.0), (70.0, 13.0), (100.0, 20.0)], ["maximize", "minimize"])
    assert pareto.knee(front) == 1
    # On a straight front no point lies beyond the line: the first is taken.
    assert pareto.knee(np.array([[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]])) == 0
    assert pareto.knee(np.array([[2.0, 3.0]])) == 0


@pytest.mark.parametrize("objectives", [2, 3])
def test_the_hypervolume_is_that_of_the_union_of_boxes(objectives: int) -> None:
    rng = np.random.default_rng(objectives)
    points = rng.integers(0, 9, (7, objectives)).astype(float)
    low, high = points.min(axis=0), points.max(axis=0)
    exact = [tuple(Fraction(int(p - a), int(b - a)) for p, a, b in zip(row, low, high, strict=True)) for row in points]
    expected = [float(boxes(exact[: count + 1])) for count in range(len(exact))]
    assert pareto.volumes(points) == pytest.approx(expected, abs=1e-12)
    assert len(set(expected)) > 3


def test_an_objective_that_never_differs_changes_nothing() -> None:
    points = np.array([[0.0, 7.0], [3.0, 7.0], [4.0, 7.0]])
    assert pareto.volumes(points) == pytest.approx([0, 0.75, 1])
