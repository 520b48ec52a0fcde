"""What stopped federations would have ended with, by hand, and that they do not pull the winner down together."""

import numpy as np
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState, create_trial

from analysis.estimate.stopped import Measured, ends_of
from analysis.estimate.winner import estimate, standing
from search_spaces.metrics import UNREACHED

X = {"x": FloatDistribution(0.0, 1.0)}


def trial(number, x, *curve, state=TrialState.COMPLETE, seed=0):
    """A federation with these values from round 1 on."""
    made = create_trial(
        state=state,
        params={"x": x},
        distributions=X,
        values=[curve[-1]] if state is TrialState.COMPLETE else None,
        intermediate_values=dict(enumerate(curve, start=1)),
        user_attrs={"seed": seed},
    )
    made.number = number
    return made


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
def test_the_mean_gain_is_added_and_those_of_one_round_err_together(sign):
    whole = [trial(0, 0.1, 0.1, 0.3, 0.5), trial(1, 0.2, 0.2, 0.5, 0.9), trial(2, 0.3, 0.4, 0.5, 0.5)]
    early = [trial(n, 0.1 * n, v, state=TrialState.PRUNED) for n, v in ((3, 0.0), (4, 0.15))]
    later = [trial(5, 0.6, 0.1, 0.2, state=TrialState.PRUNED)]
    value, covariance = ends_of(measured(*whole, *early, *later, sign=sign), sign)
    gained = np.array([0.4, 0.7, 0.1]), np.array([0.2, 0.4, 0.0])
    np.testing.assert_allclose(
        value, sign * np.array([0.5, 0.9, 0.5, 0.0 + 0.4, 0.15 + 0.4, 0.2 + 0.2]), rtol=0, atol=1e-12
    )
    first, second = np.var(gained[0], ddof=1), np.var(gained[1], ddof=1)
    expected = np.zeros((6, 6))
    expected[3:5, 3:5] = first * (1 + 1 / 3) + first * np.eye(2)
    expected[5, 5] = second * (1 + 1 / 3) + second
    np.testing.assert_allclose(covariance, expected, rtol=0, atol=1e-12)


def test_where_one_gain_is_known_or_none_the_guess_is_vague():
    whole = [trial(0, 0.1, 0.1, 0.5), trial(1, 0.2, UNREACHED, 0.9), trial(2, 0.3, UNREACHED, 0.2)]
    early = [trial(3, 0.4, 0.0, state=TrialState.PRUNED), trial(4, 0.5, 0.3, state=TrialState.PRUNED)]
    value, covariance = ends_of(measured(*whole, *early), 1.0)
    assert value.tolist() == [0.5, 0.9, 0.2, 0.0, 0.3]
    vague = max(np.var([0.5, 0.9, 0.2]), np.var(value))
    np.testing.assert_allclose(covariance[3:, 3:], vague + vague * np.eye(2))
    assert not covariance[:3].any() and not covariance[:, :3].any()


def test_a_trial_over_several_seeds_gains_once():
    whole = [trial(0, 0.1, 0.1, 0.5), trial(1, 0.2, 0.2, 0.3)]
    found = [*measured(*whole), *measured(whole[0]), *measured(trial(2, 0.3, 0.0, state=TrialState.PRUNED))]
    value, covariance = ends_of(found, 1.0)
    gained = np.array([0.4, 0.1])
    assert value[3] == pytest.approx(gained.mean())
    assert covariance[3, 3] == pytest.approx(np.var(gained, ddof=1) * (2 + 1 / 2))


def early_search(rng):
    """Sixty configurations of which all end at about 0.6. Their first round is noise, and the sixth with the highest
    first values goes on; who began low gains more."""
    first, last = rng.normal(0.3, 0.1, 60), 0.6 + rng.normal(0, 0.05, 60)
    goes_on = first > np.quantile(first, 5 / 6)
    return [
        trial(i, float(rng.uniform()), float(a), float(b))
        if on
        else trial(i, float(rng.uniform()), float(a), state=TrialState.PRUNED)
        for i, (a, b, on) in enumerate(zip(first, last, goes_on, strict=True))
    ]


def test_who_was_stopped_for_bad_luck_does_not_pull_the_winner_down(monkeypatch):
    """Their guesses are too low together. Were each thought to err alone, so would be the estimate of the winner."""
    searches = [early_search(np.random.default_rng(seed)) for seed in range(8)]
    said = [estimate(standing(trials, 1.0)) for trials in searches]
    assert abs(np.mean([one.mean for one in said]) - 0.6) < 0.03
    assert sum(one.low <= 0.6 <= one.high for one in said) >= 7

    def alone(found, sign):
        value, covariance = ends_of(found, sign)
        return value, np.diag(np.diag(covariance))

    monkeypatch.setattr("analysis.estimate.winner.ends_of", alone)
    assert np.mean([estimate(standing(trials, 1.0)).mean for trials in searches]) < 0.55
