"""What is believed of configurations that were stopped early."""

from __future__ import annotations

import numpy as np
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import FrozenTrial, TrialState

from analysis.estimate import Standing, Unseen, standing, unseen, unseen_sentence
from tests.trials import frozen_trial


def trial(number: int, x: float, curve: list[float], *, stopped: bool = False) -> FrozenTrial:
    value, state = (None, TrialState.PRUNED) if stopped else (curve[-1], TrialState.COMPLETE)
    return frozen_trial(number, {"x": x}, value, state, curve=curve, kinds={"x": FloatDistribution(0.0, 1.0)})


def found(*stopped: FrozenTrial) -> Standing:
    rng = np.random.default_rng(4)
    ends = 0.5 + 0.3 * np.linspace(0, 1, 7) + 0.03 * rng.standard_normal(7)
    whole = [trial(i, i / 6, [float(end) - 0.2, float(end)]) for i, end in enumerate(ends)]
    known = standing([*whole, *stopped], 1.0)
    assert known is not None
    return known


def test_it_agrees_with_draws_from_the_posterior() -> None:
    known = found(trial(7, 0.1, [0.62], stopped=True), trial(8, 0.9, [0.55], stopped=True))
    believed = unseen(known)
    assert believed is not None and believed.configurations == 2
    # A multivariate t is a normal over the root of a chi-squared; a part of the mixture is drawn by its weight.
    rng, belief = np.random.default_rng(0), known.belief
    draws = []
    for part in rng.choice(len(belief.parts), 40_000, p=[part.weight for part in belief.parts]):
        one = belief.parts[part]
        root = np.linalg.cholesky(one.covariance + 1e-14 * np.eye(len(one.mean)))
        scale = np.sqrt(rng.chisquare(belief.freedom) / belief.freedom)
        draws.append(one.mean + root @ rng.standard_normal(len(one.mean)) / scale)
    means = np.array(draws)
    best = known.numbers.index(known.ranked[0])
    better = (means[:, [known.numbers.index(n) for n in (7, 8)]] > means[:, [best]]).mean(axis=0)
    assert believed.better == pytest.approx(float(better.sum()), abs=0.02)
    assert believed.likeliest == (7, 8)[int(better.argmax())]
    assert believed.probability == pytest.approx(float(better.max()), abs=0.02)


def test_without_stopped_trials_nothing_is_believed() -> None:
    assert unseen(found()) is None


def test_a_hopeless_trial_is_told_as_such() -> None:
    believed = unseen(found(trial(7, 0.05, [0.05], stopped=True)))
    assert believed is not None and believed.probability < 0.05 and believed.better == believed.probability
    assert unseen_sentence(Unseen(1, 0.004, 7, 0.004)) == (
        "By the search's own model trial 7 would have won with a probability of less than 1 %."
    )
    assert "about 0.4 of 3 stopped configurations" in unseen_sentence(Unseen(3, 0.44, 2, 0.31))
