"""Importances of parameters, some of which not all trials have."""

from __future__ import annotations

import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, create_trial

from analysis.runs.importance import importances


def conditional() -> list[FrozenTrial]:
    """Trials of a choice, a number that only one of its options has, and one whose bounds were moved on the way; every
    trial has distributions of its own."""
    found = []
    for n in range(60):
        kind, x, k = ("prox", "plain")[n % 2], ((7 * n) % 60) / 60, (11 * n) % 9
        params: dict[str, object] = {"kind": kind, "x": x, "k": k}
        distributions: dict[str, BaseDistribution] = {
            "kind": CategoricalDistribution(("prox", "plain")),
            "x": FloatDistribution(0, 1 if n < 30 else 2),
            "k": IntDistribution(0, 8),
        }
        if kind == "prox":
            params["mu"], distributions["mu"] = 10 ** (-3 * x), FloatDistribution(1e-3, 1, log=True)
        trial = create_trial(params=params, distributions=distributions, value=x + 0.1 * k + (kind == "prox"))
        trial.number = trial._trial_id = n
        found.append(trial)
    return found


def test_equal_ones_stand_in_the_order_of_the_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of equal parameters a figure draws is the same in every process: Optuna has them in the order of a set."""
    trials = conditional()
    equal = dict.fromkeys(("mu", "k", "x", "kind"), 0.25)
    monkeypatch.setattr("optuna.importance.get_param_importances", lambda *_, **__: equal)
    assert list(importances(["maximize"], trials)) == list(dict.fromkeys(n for t in trials for n in t.params))
