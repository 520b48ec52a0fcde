"""Importances of trials that are asked often: the same numbers, with next to no hash of a distribution computed."""

from __future__ import annotations

import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, create_trial

from analysis.runs import Run
from analysis.runs.importance import importances, to_ask_often


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


def test_the_numbers_are_the_same(loaded: dict[str, Run]) -> None:
    searched = [trial for trial in loaded["wide"].frozen if trial.state.name == "COMPLETE"]
    for trials in (conditional(), searched):
        for direction in ("maximize", "minimize"):
            found = importances([direction], to_ask_often(trials))
            assert found == pytest.approx(importances([direction], trials), rel=1e-12)
            assert len({round(share, 6) for share in found.values()}) > 2, "else the test shows nothing"


def test_a_hash_is_computed_for_a_distribution_and_not_for_every_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    computed, compute = [], BaseDistribution.__hash__

    def counted(self: BaseDistribution) -> int:
        computed.append(self)
        return compute(self)

    trials = [trial for trial in conditional() if trial.params["kind"] == "plain"]
    for trial in trials:
        trial.distributions = trials[0].distributions
    for kind in (BaseDistribution, CategoricalDistribution):
        monkeypatch.setattr(kind, "__hash__", counted)
    often = to_ask_often(trials)
    for _ in range(3):
        importances(["maximize"], often)
    assert len(computed) == len(trials[0].distributions)


def test_the_trials_themselves_stay_as_they_are() -> None:
    trials = conditional()
    kinds = [type(one) for trial in trials for one in trial.distributions.values()]
    often = to_ask_often(trials)
    assert [type(one) for trial in trials for one in trial.distributions.values()] == kinds
    assert [trial.params for trial in often] == [trial.params for trial in trials]
    assert len({id(trial.distributions["x"]) for trial in often}) == 2, "one for each pair of bounds"


def test_equal_ones_stand_in_the_order_of_the_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of equal parameters a figure draws is the same in every process: Optuna has them in the order of a set."""
    trials = conditional()
    equal = dict.fromkeys(("mu", "k", "x", "kind"), 0.25)
    monkeypatch.setattr("optuna.importance.get_param_importances", lambda *_, **__: equal)
    assert list(importances(["maximize"], trials)) == list(dict.fromkeys(n for t in trials for n in t.params))
