"""Early stopping rules against hand-counted cases."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterable
from itertools import pairwise

import pytest

from fedtune.decisions.early_stopping import (
    Earlier,
    Halving,
    Later,
    LearningCurve,
    Median,
    Never,
    Rule,
    ahead,
    default_grace,
    dominates,
    rungs,
    value_at,
)


def rule(scheduler: str, histories: Iterable[LearningCurve], **given: int) -> Rule:
    found = Earlier(scheduler, **given)
    for history in histories:
        found.add(history)
    return found.rule()


def test_rungs_are_powers_in_the_first_two_thirds_of_the_planned_rounds() -> None:
    assert rungs(9, 1, 3) == [1, 3]
    assert rungs(10, 1, 3) == [1, 3]
    assert rungs(30, 2, 3) == [2, 6, 18]
    assert rungs(100, 1, 4) == [1, 4, 16, 64]
    assert rungs(1, 1, 3) == []
    assert rungs(9, 2, 3) == [2, 6], "a rung at exactly two thirds is one"


@pytest.mark.parametrize(
    ("rounds", "expected"), [(1, 1), (2, 1), (3, 2), (9, 3), (10, 3), (100, 3), (200, 7), (1000, 37)]
)
def test_the_first_rung_is_the_third_round_or_a_27th(rounds: int, expected: int) -> None:
    assert default_grace(rounds, 3) == expected


def test_the_first_trial_at_a_rung_passes() -> None:
    assert not Halving.of(3, {3: []}).stops(3, {3: (0.0,)})
    assert not Halving().stops(3, {3: (0.0,)})
    assert not Median().stops(3, {3: (0.0,)})


@pytest.mark.parametrize(("own", "stops"), [(0.9, False), (0.8, False), (0.7, True), (0.1, True)])
def test_one_third_of_the_trials_that_reached_a_rung_goes_on(own: float, stops: bool) -> None:
    # Six trials with this one; a third is two; 0.9 would be first, 0.8 ties with the best, 0.7 is third.
    others = [(0.8,), (0.75,), (0.5,), (0.4,), (0.3,)]
    assert Halving.of(3, {3: others}).stops(3, {1: (0.0,), 3: (own,)}) is stops


def test_the_share_counts_the_trial_itself_and_is_rounded_up() -> None:
    # Four trials with this one; a third of four is one and a third, so the two best go on.
    others = [(0.8,), (0.5,), (0.4,)]
    assert not Halving.of(3, {3: others}).stops(3, {3: (0.7,)})
    assert Halving.of(3, {3: others}).stops(3, {3: (0.45,)})
    assert not Halving.of(3, {3: others}).stops(3, {}), "a trial that measured nothing is not compared"


def test_halving_decides_at_rungs_only() -> None:
    assert not Halving.of(3, {3: [(1.0,)] * 5}).stops(2, {2: (0.0,)})


def test_a_rung_without_evaluation_uses_the_last_measured_value() -> None:
    assert value_at({2: (0.5,), 4: (0.9,)}, 3) == (0.5,)
    assert value_at({4: (0.9,)}, 3) is None
    made = rule("asha", [LearningCurve(9, {2: (0.5,), 4: (0.9,)})], rounds=9, grace=3, reduction=3)
    assert made.stops(3, {2: (0.4,)})
    assert not made.stops(3, {2: (0.5,)})


def test_only_trials_that_reached_the_rung_count() -> None:
    made = rule("asha", [LearningCurve(1, {1: (0.9,)})], rounds=9, grace=1, reduction=3)
    assert made.stops(1, {1: (0.5,)})
    assert not made.stops(3, {3: (0.5,)})


def test_a_value_that_is_not_finite_is_no_rival() -> None:
    assert not rule("asha", [LearningCurve(2, {1: (float("nan"),)})], rounds=9, grace=1, reduction=3).stops(
        1, {1: (0.1,)}
    )


def test_no_rival_is_a_trial_with_one_metric_that_is_not_finite_or_with_none_by_then() -> None:
    half = LearningCurve(9, {1: (1.0, float("inf"))})
    late = LearningCurve(9, {2: (1.0, 1.0)})
    made = rule("asha", [half, half, half, late, late, late], rounds=9, grace=1, reduction=3)
    assert made == Halving.of(3, {1: [], 3: [(1.0, 1.0)] * 3})


def test_pareto_rank() -> None:
    assert dominates((1, 1), (1, 0))
    assert not dominates((1, 0), (0, 1))
    # Fronts: {(3,1), (1,3), (2,2)}, {(1,1)}, {(0,0)}.
    vectors = [(3.0, 1.0), (1.0, 3.0), (2.0, 2.0), (1.0, 1.0)]
    assert ahead((0.0, 0.0), vectors) == 4
    assert ahead((1.0, 1.0), vectors[:3]) == 3
    assert ahead((2.5, 1.5), vectors) == 0


def test_pareto_halving_keeps_the_first_front() -> None:
    made = rule(
        "asha",
        [LearningCurve(9, {1: (0.9, 0.1)}), LearningCurve(9, {1: (0.1, 0.9)}), LearningCurve(9, {1: (0.2, 0.2)})],
        rounds=9,
        grace=1,
        reduction=3,
    )
    assert not made.stops(1, {1: (0.5, 0.5)})
    assert made.stops(1, {1: (0.1, 0.1)})


def test_median_of_running_means() -> None:
    # Running means at round 2: 0.2, 0.4, 0.6; the median is 0.4.
    histories = [
        LearningCurve(9, {1: (0.1,), 2: (0.3,)}),
        LearningCurve(9, {1: (0.3,), 2: (0.5,)}),
        LearningCurve(9, {1: (0.5,), 2: (0.7,)}),
    ]
    made = rule("median", histories, rounds=9, grace=2, reduction=3)
    assert isinstance(made, Median)
    assert made.medians[2] == pytest.approx(0.4)
    assert made.stops(2, {1: (0.3,), 2: (0.39,)})
    assert not made.stops(2, {1: (0.45,), 2: (0.1,)})  # the best so far decides
    assert not made.stops(1, {1: (0.0,)})  # before the grace
    assert not made.stops(2, {1: (0.1,), 2: (0.45,)})  # this round's value counts
    assert made.stops(2, {1: (0.1,), 3: (0.9,)})  # a later one does not
    assert not made.stops(2, {})
    assert not Median({2: 0.5}).stops(2, {2: (0.5,)}), "the median itself is not below the median"


def test_the_median_is_of_trials_that_reached_the_round_and_of_finite_values() -> None:
    rising = [LearningCurve(4, {1: (v,), 2: (v,), 3: (v + 1,)}) for v in (0.2, 0.4, 0.6)]
    stopped = LearningCurve(2, {1: (5.0,), 2: (5.0,)})
    diverged = LearningCurve(4, {1: (0.9,), 2: (float("nan"),), 3: (float("inf"),)})
    never_measured = LearningCurve(4, {})
    made = rule("median", [*rising, stopped, diverged, never_measured], rounds=5, grace=2, reduction=3)
    assert isinstance(made, Median)
    # Round 2: means 0.2, 0.4, 0.6, 5.0 and 0.9 (its one finite value). Rounds 3 and 4: a third more for the first
    # three, 0.9, and not the stopped trial.
    between = (0.4 + 1 / 3 + 0.9) / 2
    assert made.medians == pytest.approx({2: 0.6, 3: between, 4: between})


def test_median_waits_for_enough_trials() -> None:
    """Three of them."""
    histories = [LearningCurve(9, {1: (1.0,)})] * 3
    assert not rule("median", histories[:2], rounds=9, grace=1, reduction=3).stops(1, {1: (0.0,)})
    assert rule("median", histories, rounds=9, grace=1, reduction=3).stops(1, {1: (0.0,)})


def test_none_never_stops() -> None:
    assert isinstance(rule("none", [LearningCurve(9, {1: (1.0,)})] * 9, rounds=9, grace=1, reduction=3), Never)
    assert not Never().stops(8, {8: (-1.0,)})


def test_a_rule_of_one_metric_does_not_grow_with_the_trials_and_decides_as_all_of_them_do() -> None:
    """Ray keeps the rule of every trial as long as the search lasts."""
    rng = random.Random(3)
    for count in (1, 2, 3, 4, 5, 6, 40):
        for reduction in (2, 3, 4):
            others = [(rng.randrange(12) / 12,) for _ in range(count)]
            made = Halving.of(reduction, {3: others})
            for own in range(-1, 14):
                better = sum(value > own / 12 for (value,) in others)
                stops = made.stops(3, {3: (own / 12,)})
                assert stops is (better >= -(-(count + 1) // reduction)), (count, reduction, own)
    histories = [LearningCurve(9, {r: (rng.random(),) for r in range(1, 10)}) for _ in range(3000)]
    sizes = [rule("asha", histories[:count], rounds=9, grace=1, reduction=3) for count in (30, 3000)]
    assert len(pickle.dumps(sizes[1])) == len(pickle.dumps(sizes[0])) < 500


def test_halving_is_monotone_in_the_value() -> None:
    others = [(i / 10,) for i in range(10)]
    decisions = [Halving.of(3, {1: others}).stops(1, {1: (i / 20,)}) for i in range(21)]
    assert all(a >= b for a, b in pairwise(decisions))
    assert True in decisions and False in decisions


def test_it_is_known_beforehand_where_a_trial_may_end() -> None:
    """The rounds after which a rule may say yes, which a trial measures as a last one."""
    halving, median = Halving.of(3, {3: [(1.0,)], 9: []}), Median({4: 0.5})
    for made, where in (
        (halving, [3]),
        (median, [4]),
        (Later(2, halving), [3]),
        (Later(5, median), [4]),
        (Never(), []),
    ):
        assert [t for t in range(1, 12) if made.may_stop(t)] == where


@pytest.mark.parametrize("scheduler", ["asha", "median"])
def test_what_is_taken_out_again_was_never_there(scheduler: str) -> None:
    """In whatever order trials were added; of several rounds, and some that reach none of them or are equal."""
    rng = random.Random(4)
    ran = [rng.choice([1, 2, 4, 9]) for _ in range(40)]
    histories = [LearningCurve(n, {r: (rng.randrange(5) / 4,) for r in range(1, n + 1)}) for n in ran]
    given = {"rounds": 9, "grace": 2, "reduction": 3}
    found = Earlier(scheduler, **given)
    for history in rng.sample(histories, 40):
        found.add(history)
    assert found.rule() == rule(scheduler, histories, **given)
    for history in histories[20:]:
        found.remove(history)
    assert found.rule() == rule(scheduler, histories[:20], **given) != rule(scheduler, histories, **given)
