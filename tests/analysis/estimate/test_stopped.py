"""What stopped federations would have ended with, by hand, and that they do not pull the winner down together."""

import numpy as np
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState, create_trial

from analysis.estimate.stopped import Measured, ends_of
from analysis.estimate.winner import estimate, standing
from search_spaces.metrics import UNREACHED

X = {"x": FloatDistribution(0.0, 1.0)}


def trial(number, x, *curve, state=TrialState.COMPLETE):
    """A federation with these values from round 1 on."""
    made = create_trial(
        state=state,
        params={"x": x},
        distributions=X,
        values=[curve[-1]] if state is TrialState.COMPLETE else None,
        intermediate_values=dict(enumerate(curve, start=1)),
        user_attrs={"seed": 0},
    )
    made.number = number
    return made


def stopped(number, x, *curve):
    return trial(number, x, *curve, state=TrialState.PRUNED)


def measured(*trials, sign=1.0):
    return [
        Measured(
            (("x", t.params["x"]),),
            (0,),
            sign * t.intermediate_values[max(t.intermediate_values)],
            t,
            t.state is TrialState.COMPLETE,
        )
        for t in trials
    ]


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_mean_gain_is_added_and_guesses_err_together(sign):
    whole = [trial(0, 0.1, 0.1, 0.3, 0.5), trial(1, 0.2, 0.2, 0.5, 0.9), trial(2, 0.3, 0.4, 0.5, 0.5)]
    early, later = [stopped(3, 0.3, 0.0), stopped(4, 0.4, 0.15)], [stopped(5, 0.6, 0.1, 0.2)]
    value, covariance = ends_of(measured(*whole, *early, *later, sign=sign), sign)
    gained = np.array([[0.4, 0.7, 0.1], [0.2, 0.4, 0.0]])
    ended = [0.5, 0.9, 0.5, 0.0 + 0.4, 0.15 + 0.4, 0.2 + 0.2]
    np.testing.assert_allclose(value, sign * np.array(ended), rtol=0, atol=1e-12)
    between = np.cov(gained)
    (first, both), (_, second) = between
    expected = np.zeros((6, 6))
    expected[3:5, 3:5] = first * (1 + 1 / 3) + first * np.eye(2)
    expected[5, 5] = second * (1 + 1 / 3) + second
    expected[3:5, 5] = expected[5, 3:5] = both * (1 + 1 / 3)
    np.testing.assert_allclose(covariance, expected, rtol=0, atol=1e-12)


VAGUE = {
    "two are known": ([(0.1, 0.5), (0.2, 0.9), (UNREACHED, 0.2)], 0.55),
    "none is known": ([(UNREACHED, 0.5), (UNREACHED, 0.9), (UNREACHED, 0.2)], 0.0),
    "what ended differs most": ([(0.1, 0.0), (0.2, 1.0), (UNREACHED, 0.2)], 0.35),
}


@pytest.mark.parametrize(("curves", "gain"), VAGUE.values(), ids=VAGUE)
def test_with_fewer_than_three_gains_a_guess_is_vague(curves, gain):
    whole = [trial(i, 0.1 * i, *curve) for i, curve in enumerate(curves)]
    value, covariance = ends_of(measured(*whole, stopped(3, 0.4, 0.2), stopped(4, 0.5, 0.3)), 1.0)
    np.testing.assert_allclose(value, [end for _, end in curves] + [0.2 + gain, 0.3 + gain])
    vague = max(np.var([end for _, end in curves]), np.var([*(end for _, end in curves), 0.2, 0.3]))
    np.testing.assert_allclose(covariance[3:, 3:], vague + vague * np.eye(2))
    assert not covariance[:3].any() and not covariance[:, :3].any()


def test_without_three_trials_in_common_the_gains_of_two_rounds_are_the_same():
    """Each round has three gains, but only two trials have both."""
    nan = UNREACHED
    curves = [(0.1, 0.3, 0.5), (0.2, 0.3, 0.9), (0.1, nan, 0.4), (nan, 0.3, 0.5)]
    whole = [trial(i, 0.1 * i, *curve) for i, curve in enumerate(curves)]
    _, covariance = ends_of(measured(*whole, stopped(4, 0.5, 0.1), stopped(5, 0.6, 0.1, 0.2)), 1.0)
    one, other = np.std([0.4, 0.7, 0.3], ddof=1), np.std([0.2, 0.6, 0.2], ddof=1)
    assert covariance[4, 5] == pytest.approx(one * other * (1 + 1 / 3))


def test_where_all_gain_the_same_it_is_known():
    """A target that was reached: nothing changes any more."""
    whole = [trial(i, 0.1 * i, 0.1 * i, 0.1 * i, 0.1 * i) for i in range(4)]
    value, covariance = ends_of(measured(*whole, stopped(4, 0.5, 0.25), stopped(5, 0.6, 0.1, 0.2)), 1.0)
    assert value[4:].tolist() == [0.25, 0.2] and not covariance.any()


def test_a_trial_over_several_seeds_gains_once():
    whole = [trial(0, 0.1, 0.1, 0.5), trial(1, 0.2, 0.2, 0.3), trial(2, 0.3, 0.1, 0.2)]
    value, covariance = ends_of([*measured(*whole), *measured(whole[0]), *measured(stopped(3, 0.4, 0.0))], 1.0)
    gained = np.array([0.4, 0.1, 0.1])
    assert value[4] == pytest.approx(gained.mean())
    assert covariance[4, 4] == pytest.approx(np.var(gained, ddof=1) * (2 + 1 / 3))


def test_without_stopped_ones_nothing_is_guessed():
    value, covariance = ends_of(measured(trial(0, 0.1, 0.5), trial(1, 0.2, 0.7)), 1.0)
    assert value.tolist() == [0.5, 0.7] and covariance.tolist() == [[0, 0], [0, 0]]


def early_search(rng, rounds):
    """Sixty configurations of which all end at about 0.6. What they have before is noise, and the sixth with the most
    of it goes on; who began low gains more. The others are stopped one after the other in these rounds."""
    first, last = rng.normal(0.3, 0.1, 60), 0.6 + rng.normal(0, 0.05, 60)
    goes_on = first > np.quantile(first, 5 / 6)
    return [
        trial(i, float(rng.uniform()), *[float(a)] * rounds, float(b))
        if on
        else stopped(i, float(rng.uniform()), *[float(a)] * (1 + i % rounds))
        for i, (a, b, on) in enumerate(zip(first, last, goes_on, strict=True))
    ]


@pytest.mark.parametrize("rounds", [1, 10])
def test_who_was_stopped_for_bad_luck_does_not_pull_the_winner_down(rounds, monkeypatch):
    """Their guesses are too low together. Were each thought to err alone, the winner's estimate would be too low as
    well."""
    searches = [early_search(np.random.default_rng(seed), rounds) for seed in range(8)]
    said = [estimate(standing(trials, 1.0)) for trials in searches]
    assert abs(np.mean([one.mean for one in said]) - 0.6) < 0.04
    assert sum(one.low <= 0.6 <= one.high for one in said) >= 7

    def alone(found, sign):
        value, covariance = ends_of(found, sign)
        return value, np.diag(np.diag(covariance))

    monkeypatch.setattr("analysis.estimate.winner.ends_of", alone)
    assert np.mean([estimate(standing(trials, 1.0)).mean for trials in searches]) < 0.55
