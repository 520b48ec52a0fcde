"""What stands for a federation's last value, by hand: of a complete one its curve, of a stopped one a guess. And that
stopped ones do not pull the winner down together."""

import dataclasses

import numpy as np
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState

from analysis.estimate.ends import Measured, ends_of, tails_of
from analysis.estimate.winner import estimate, standing
from search_spaces.metrics import UNREACHED
from tests.trials import frozen_trial

X = {"x": FloatDistribution(0.0, 1.0)}


def trial(number, x, *curve, state=TrialState.COMPLETE):
    """A federation with these values from round 1 on."""
    last = curve[-1] if state is TrialState.COMPLETE else None
    return frozen_trial(number, {"x": x}, last, state, curve=curve, kinds=X, seed=0)


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
            {r: sign * v for r, v in t.intermediate_values.items()},
        )
        for t in trials
    ]


def told(found, sign):
    ends = ends_of(found, sign, tails_of(found))
    return ends.value, ends.covariance, ends.last_round


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_mean_gain_is_added_and_guesses_err_together(sign):
    whole = [trial(0, 0.1, 0.1, 0.3, 0.5), trial(1, 0.2, 0.2, 0.5, 0.9), trial(2, 0.3, 0.4, 0.5, 0.5)]
    early, later = [stopped(3, 0.3, 0.0), stopped(4, 0.4, 0.15)], [stopped(5, 0.6, 0.1, 0.2)]
    value, covariance, _ = told(measured(*whole, *early, *later, sign=sign), sign)
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
    value, covariance, _ = told(measured(*whole, stopped(3, 0.4, 0.2), stopped(4, 0.5, 0.3)), 1.0)
    np.testing.assert_allclose(value, [end for _, end in curves] + [0.2 + gain, 0.3 + gain])
    vague = max(np.var([end for _, end in curves]), np.var([*(end for _, end in curves), 0.2, 0.3]))
    np.testing.assert_allclose(covariance[3:, 3:], vague + vague * np.eye(2))
    assert not covariance[:3].any() and not covariance[:, :3].any()


def test_without_three_trials_in_common_the_gains_of_two_rounds_are_the_same():
    """Each round has three gains, but only two trials have both."""
    nan = UNREACHED
    curves = [(0.1, 0.3, 0.5), (0.2, 0.3, 0.9), (0.1, nan, 0.4), (nan, 0.3, 0.5)]
    whole = [trial(i, 0.1 * i, *curve) for i, curve in enumerate(curves)]
    _, covariance, _ = told(measured(*whole, stopped(4, 0.5, 0.1), stopped(5, 0.6, 0.1, 0.2)), 1.0)
    one, other = np.std([0.4, 0.7, 0.3], ddof=1), np.std([0.2, 0.6, 0.2], ddof=1)
    assert covariance[4, 5] == pytest.approx(one * other * (1 + 1 / 3))


def test_where_all_gain_the_same_it_is_known():
    """A target that was reached: nothing changes any more."""
    whole = [trial(i, 0.1 * i, 0.1 * i, 0.1 * i, 0.1 * i) for i in range(4)]
    value, covariance, _ = told(measured(*whole, stopped(4, 0.5, 0.25), stopped(5, 0.6, 0.1, 0.2)), 1.0)
    assert value[4:].tolist() == [0.25, 0.2] and not covariance.any()


def test_a_trial_over_several_seeds_gains_once():
    whole = [trial(0, 0.1, 0.1, 0.5), trial(1, 0.2, 0.2, 0.3), trial(2, 0.3, 0.1, 0.2)]
    value, covariance, _ = told([*measured(*whole), *measured(whole[0]), *measured(stopped(3, 0.4, 0.0))], 1.0)
    gained = np.array([0.4, 0.1, 0.1])
    assert value[4] == pytest.approx(gained.mean())
    assert covariance[4, 4] == pytest.approx(np.var(gained, ddof=1) * (2 + 1 / 3))


def test_without_stopped_ones_nothing_is_guessed():
    value, covariance, _ = told(measured(trial(0, 0.1, 0.5), trial(1, 0.2, 0.7)), 1.0)
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

    def alone(found, sign, tails):
        ends = ends_of(found, sign, tails)
        return dataclasses.replace(ends, covariance=np.diag(np.diag(ends.covariance)))

    monkeypatch.setattr("analysis.estimate.winner.ends_of", alone)
    assert np.mean([estimate(standing(trials, 1.0)).mean for trials in searches]) < 0.55


CURVES = [
    (0.1, 0.2, 0.40, 0.50, 0.45, 0.62),
    (0.1, 0.3, 0.50, 0.48, 0.55, 0.53),
    (0.1, 0.2, 0.30, 0.35, 0.50, 0.57),
    (0.1, 0.1, 0.20, 0.21, 0.19, 0.20),
]


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_second_half_of_a_curve_stands_for_its_last_value(sign):
    """By the equations, with lines from `np.polyfit`: four curves of six rounds, so tails of three."""
    curves = np.array(CURVES)
    last, tails = curves[:, -1], curves[:, 3:]
    lines = [np.polyval(np.polyfit(range(3), tail, 1), range(3)) for tail in tails]
    noise = ((tails - lines) ** 2).sum() / 4 * (2 / 3)
    gain = last - tails.mean(axis=1)
    total = np.var(gain, ddof=1)
    weight = 1 - noise / total
    assert 0.2 < weight < 0.8, "neither end"
    whole = measured(*[trial(i, 0.1 * i, *curve) for i, curve in enumerate(CURVES)], sign=sign)
    value, covariance, last_round = told(whole, sign)
    expected = tails.mean(axis=1) + gain.mean() + weight * (gain - gain.mean())
    np.testing.assert_allclose(value, sign * expected, rtol=0, atol=1e-12)
    assert value.mean() == pytest.approx(sign * last.mean()), "the number means what a last value means"
    np.testing.assert_allclose(
        covariance, (1 - weight) ** 2 * total / 4 + weight * (1 - weight) * total * np.eye(4), rtol=0, atol=1e-12
    )
    assert last_round == pytest.approx(noise * (1 - weight**2))


def test_a_seed_more_does_not_tell_what_is_a_configurations_own():
    """What is wrong of a configuration's own gain is the same on both seeds; a curve that is not known keeps the noise
    of its last round."""
    whole = measured(*[trial(i, 0.1 * i, *curve) for i, curve in enumerate(CURVES)])
    again = dataclasses.replace(whole[0], configuration=whole[1].configuration, seeds=(1,))
    lost = dataclasses.replace(whole[2], seeds=(1,), curve={})
    value, covariance, last_round = told([again, *whole[1:], lost], 1.0)
    assert covariance[0, 1] == covariance[0, 0] == covariance[1, 1] > covariance[0, 2] == covariance[2, 3] > 0
    assert value[4] == whole[2].value and covariance[4].tolist() == [0, 0, 0, 0, last_round]


def test_gains_that_differ_as_rounds_do_are_noise():
    """Every curve is level; then the mean of the tail plus the mean gain stands for the last value."""
    rng = np.random.default_rng(1)
    curves = 0.5 + rng.normal(0, 0.1, (40, 8))
    value, *_ = told(measured(*[trial(i, 0.01 * i, *curve) for i, curve in enumerate(curves.tolist())]), 1.0)
    tails = curves[:, 4:].mean(axis=1)
    assert np.abs(value - (tails + curves[:, -1].mean() - tails.mean())).max() < 0.02
    assert np.std(value) < 0.6 * np.std(curves[:, -1])


LAST_ALONE = {
    "four rounds": [curve[:4] for curve in CURVES],
    "two curves": [*CURVES[:2], (0.6,), (0.2,)],
    "lines": [(0.1, 0.1 + s, 0.1 + 2 * s, 0.1 + 3 * s, 0.1 + 4 * s) for s in (0.1, 0.05, 0.2)],
    "a target reached in the last rounds": [(UNREACHED,) * 4 + (3.0, 3.0), (UNREACHED,) * 3 + (4.0,) * 3] * 2,
    "equal gains": [(0.1 * i,) * 5 for i in range(4)],
}


@pytest.mark.parametrize("curves", LAST_ALONE.values(), ids=LAST_ALONE)
def test_where_a_curve_says_no_more_the_last_value_stands(curves):
    value, covariance, last_round = told(measured(*[trial(i, 0.1 * i, *c) for i, c in enumerate(curves)]), 1.0)
    np.testing.assert_allclose(value, [curve[-1] for curve in curves], rtol=0, atol=1e-15)
    assert max(np.abs(covariance).max(), last_round) < 1e-30, "the square of a rounding at most"


def noisy_search(rng):
    """Twenty level curves of ten rounds, no neighbour like another, with noise in every round; the true means."""
    true = rng.normal(0.5, 0.05, 20)
    return true, [trial(i, float(rng.uniform()), *(m + rng.normal(0, 0.05, 10))) for i, m in enumerate(true)]


def test_a_winner_by_curves_is_better_and_its_interval_holds():
    """Over 40 searches: less regret than by last values alone, and the interval of a mean over two fresh last values
    holds nine times of ten."""
    regret, alone, held = [], [], 0
    for seed in range(40):
        rng = np.random.default_rng([seed, 5])
        true, trials = noisy_search(rng)
        found = standing(trials, 1.0)
        said = estimate(found, fresh=2)
        regret.append(true.max() - true[said.trial])
        alone.append(true.max() - true[max(trials, key=lambda t: t.values[0]).number])
        held += said.low <= true[said.trial] + rng.normal(0, 0.05, 2).mean() <= said.high
        assert said.noise**2 == pytest.approx(found.belief.own + found.belief.shared + found.belief.last_round)
    assert np.mean(regret) < 0.6 * np.mean(alone)
    assert held >= 34
