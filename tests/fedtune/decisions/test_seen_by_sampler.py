"""What a sampler is shown of trials that have ended: every kind of ending, for samplers that read stopped trials and
for those that read complete ones only."""

from __future__ import annotations

import math
from typing import Any

import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from fedtune.decisions.optuna_samplers import seen_by_sampler
from search_spaces.metrics import UNREACHED

C, P, F = TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL


def ended(state: TrialState, *values: float, curve: dict[int, float] | None = None) -> FrozenTrial:
    settings: dict[str, Any] = {"params": {"x": 0.25}, "distributions": {"x": FloatDistribution(0, 1)}}
    return create_trial(
        state=state,
        values=list(values) or None,
        intermediate_values=curve or {},
        user_attrs={"rounds": 3},
        system_attrs={"kept": 1},
        **settings,
    )


def seen(trials: list[FrozenTrial], *signs: float, completes_only: bool) -> list[tuple[str, Any] | None]:
    """State and values, or last step, of what is shown."""
    found = seen_by_sampler(trials, signs, completes_only=completes_only)
    for trial in found:
        assert trial is None or (trial.params, trial.system_attrs) == ({"x": 0.25}, {"kept": 1})
    return [
        None if t is None else (t.state.name, t.values if t.state == C else dict(t.intermediate_values)) for t in found
    ]


def test_a_sampler_that_reads_stopped_trials_sees_their_last_value_and_failed_ones_as_stopped_at_once() -> None:
    trials = [ended(C, 0.5, curve={1: 0.4, 3: 0.5}), ended(P, curve={1: 0.3, 2: 0.35}), ended(F), ended(P)]
    assert seen(trials, 1.0, completes_only=False) == [
        ("COMPLETE", [0.5]),
        ("PRUNED", {2: 0.35}),
        ("PRUNED", {}),
        ("PRUNED", {}),
    ]
    assert seen_by_sampler(trials, [1.0], completes_only=False)[0].intermediate_values == {}


@pytest.mark.parametrize(("sign", "worst"), [(1.0, 0.2), (-1.0, 0.9)])
def test_a_sampler_of_complete_trials_sees_a_stopped_one_by_its_last_value_and_a_failed_one_as_the_worst(
    sign: float, worst: float
) -> None:
    trials = [ended(C, v, curve={1: 0.3, 3: v}) for v in (0.5, 0.2, 0.9)]
    trials += [ended(P, curve={1: 0.3, 2: 0.35}), ended(F), ended(P)]
    assert seen(trials, sign, completes_only=True) == [
        *(("COMPLETE", [v]) for v in (0.5, 0.2, 0.9, 0.35, worst)),
        ("PRUNED", {}),
    ]
    found = seen_by_sampler(trials, [sign], completes_only=True)
    assert [one.intermediate_values for one in found] == [{}, {}, {}, {2: 0.35}, {}, {}]


def test_a_failed_trial_is_not_shown_as_complete_while_none_is() -> None:
    assert seen([ended(F), ended(P, curve={1: 0.3})], 1.0, completes_only=True) == [None, ("COMPLETE", [0.3])]


def test_every_metric_has_its_own_worst() -> None:
    trials = [ended(C, 0.5, 7.0), ended(C, 0.2, 3.0), ended(F)]
    assert seen(trials, 1.0, -1.0, completes_only=True)[-1] == ("COMPLETE", [0.2, 7.0])


def test_a_target_that_was_not_reached_is_shown_as_the_worst_that_was() -> None:
    """Beside a number as large as `UNREACHED` a Gaussian process would see no other difference."""
    trials = [ended(C, 5.0), ended(C, UNREACHED), ended(C, 7.0), ended(F)]
    assert [of[1] for of in seen(trials, -1.0, completes_only=True) if of] == [[5.0], [7.0], [7.0], [7.0]]
    assert [of[1] for of in seen(trials, -1.0, completes_only=False) if of][:3] == [[5.0], [UNREACHED], [7.0]]
    assert seen([ended(C, UNREACHED), ended(F)], -1.0, completes_only=True) == 2 * [("COMPLETE", [UNREACHED])]
    assert math.isfinite(UNREACHED)
