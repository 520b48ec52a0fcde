"""Which trials lost what they had learnt, and that one of them does not ruin the estimate of a search."""

import json
from pathlib import Path

import numpy as np
import pytest
from optuna.distributions import FloatDistribution, IntDistribution
from optuna.trial import TrialState

from analysis.estimate import estimate, sentences, standing, winner
from analysis.estimate.ends import Measured, tails_of
from analysis.estimate.stability import unstable
from tests.analysis.estimate.test_ends import noisy_search
from tests.trials import frozen_trial

#: A search with a trial that diverged late between neighbours at 80 %. Five fresh seeds of its winner had 80.5 %.
CLIFF = json.loads((Path(__file__).parent / "cliff.json").read_text())
STATES = {"complete": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "fail": TrialState.FAIL}


def cliff():
    kinds = {
        name: (IntDistribution if isinstance(bounds["low"], int) and name != "momentum" else FloatDistribution)(
            bounds["low"], bounds["high"], log=bounds.get("log", False)
        )
        for name, bounds in CLIFF["space"].items()
    }
    found = []
    for given in CLIFF["trials"]:
        state, curve = STATES[given["state"]], dict(zip(given["rounds"], given["validation"], strict=True))
        last = given["validation"][-1] if state is TrialState.COMPLETE else None
        found.append(frozen_trial(given["number"], given["values"], last, state, curve=curve, kinds=kinds, seed=0))
    return found


def test_a_cliff_among_good_neighbours_does_not_ruin_the_estimate(monkeypatch):
    said = estimate(standing(cliff(), 1.0), ends=(0.0, 1.0))
    assert said.unstable == (4,)
    assert abs(said.mean - 0.805) < 0.05 and said.low <= 0.805 <= said.high and said.high - said.low < 0.3
    assert 4 not in said.tied, "a trial that fell is not believed to be as good as its neighbours"
    assert (
        "Trial 4 is unstable, far below an earlier round of the same trial: what such a trial ended with says nothing "
        "of configurations near it." in sentences(said, str)
    )
    monkeypatch.setattr(winner, "unstable", lambda found, tails: [])
    ruined = estimate(standing(cliff(), 1.0), ends=(0.0, 1.0))
    assert abs(ruined.mean - 0.805) > 0.05 and ruined.high - ruined.low > 0.5


def test_without_a_cliff_nothing_changes_for_the_worse(monkeypatch):
    """Noisy rounds alone: next to none of 400 trials falls far, and choices and intervals are as good as if none had
    been looked for."""
    searches = [noisy_search(np.random.default_rng([seed, 6])) for seed in range(20)]

    def told():
        said = [estimate(standing(trials, 1.0)) for _, trials in searches]
        regret = np.mean([true.max() - true[one.trial] for one, (true, _) in zip(said, searches, strict=True)])
        return regret, np.mean([one.high - one.low for one in said]), sum(len(one.unstable) for one in said)

    regret, width, count = told()
    monkeypatch.setattr(winner, "unstable", lambda found, tails: [])
    before, width_before, _ = told()
    assert count <= 8 and regret <= before + 1e-3 and width <= 1.02 * width_before


def test_without_its_cliff_the_case_is_as_any_other():
    said = estimate(standing([trial for trial in cliff() if trial.number != 4], 1.0))
    assert said.unstable == () and not [line for line in sentences(said, str) if "unstable" in line]


def curve(*values, complete=True, configuration=()):
    return Measured(configuration, (0,), values[-1], None, complete, dict(enumerate(values, start=1)))


#: Three lines to 0.4, 0.6 and 0.8: without a scatter about a line.
STEADY = [curve(*(end * k / 6 for k in range(1, 7))) for end in (0.4, 0.6, 0.8)]


def falling(found):
    return unstable(found, tails_of(found))


@pytest.mark.parametrize(
    ("values", "falls"),
    [
        ((0.1, 0.3, 0.7, 0.5, 0.3, 0.1), True),
        ((0.5, 0.7, 0.7, 0.7, 0.7, 0.58), False),  # by more than half of what was gained, which others' ends differ by
        ((0.1, 0.8, 0.8, 0.8, 0.8, 0.5), False),  # by less than half of what was gained
        ((0.7, 0.1, 0.2, 0.3, 0.4, 0.6), False),  # learnt it again, nearly
        ((0.7, 0.1, 0.2, 0.2, 0.2, 0.2), True),  # never again what it began with
        ((0.1, 0.2, 0.3, 0.4, 0.5, 0.6), False),
    ],
)
def test_which_falls_are_far(values, falls):
    assert falling([*STEADY, curve(*values)]) == ([curve(*values)] if falls else [])


def test_a_fall_within_what_rounds_scatter_is_none():
    """Fifty level curves with noise of 0.1: by chance many end more than half below their best round."""
    rng = np.random.default_rng(3)
    level = [curve(*values) for values in (0.5 + 0.1 * rng.standard_normal((50, 8))).tolist()]
    assert len(falling(level)) <= 5
    assert falling([*level, curve(0.1, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.2)])[-1].value == 0.2


def test_stopped_trials_may_be_unstable_and_few_curves_tell_nothing():
    fell = curve(0.1, 0.9, 0.1, complete=False)
    assert falling([*STEADY, fell]) == [fell]
    assert falling([*STEADY[:2], fell]) == [] and falling([]) == []
