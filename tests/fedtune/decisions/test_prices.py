"""What a trial costs by its configuration: what is learnt is what made the seconds, and the posterior is the one of the
module's text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from fedtune.decisions import prices
from fedtune.decisions.history import History
from search_spaces.dimension import Dimension
from search_spaces.parameter import Value
from search_spaces.space import Space
from tests.trials import frozen_trial
from trainables import registry

STEPS, BATCH = (5, 100), (4, 128)


def space(cost: float | None = None) -> Space:
    declared = registry.declared("fedavg")
    steps = Dimension(declared["local_steps"], *STEPS, log=True, cost=cost)
    batch = Dimension(declared["batch_size"], *BATCH, log=True)
    rate = Dimension(declared["lr"], 0.01, 1.0, log=True)
    return Space("mine", "fedavg", {"local_steps": steps, "batch_size": batch, "lr": rate})


def ended(number: int, params: Mapping[str, Value], seconds: float, rounds: int = 10, **known: Any) -> Any:
    given = {"rounds": rounds, "seconds": seconds, **known}
    return frozen_trial(number, params, 0.5, kinds=space().distributions(), **given)


def drawn(count: int) -> list[dict[str, Value]]:
    rng = np.random.default_rng(3)
    return [
        {
            "local_steps": round(math.exp(rng.uniform(*np.log(STEPS)))),
            "batch_size": round(math.exp(rng.uniform(*np.log(BATCH)))),
            "lr": float(math.exp(rng.uniform(math.log(0.01), 0))),
        }
        for _ in range(count)
    ]


def of_a_round(params: Mapping[str, Any]) -> float:
    """Steps and batch, and what a round takes whatever these are."""
    return float(0.01 + 5e-5 * params["local_steps"] * params["batch_size"] ** 0.8)


def test_twelve_trials_tell_prices_that_differ_by_fifty() -> None:
    listed = drawn(40)
    trials = [ended(n, params, 10 * of_a_round(params)) for n, params in enumerate(listed[:12])]
    found = prices.learnt(space(), trials)
    assert found is not None
    true = [of_a_round(params) for params in listed[12:]]
    assert max(true) > 5 * min(true)
    wrong = [abs(math.log(found.of_a_round(params) / t)) for params, t in zip(listed[12:], true, strict=True)]
    assert np.median(wrong) < math.log(1.15), "one price for all would be wrong by a factor of two"
    alike = [abs(math.log(np.exp(np.mean(np.log(true))) / t)) for t in true]
    assert np.median(wrong) < np.median(alike) / 2


def test_before_any_trial_dear_configurations_are_expected_to_be_dear() -> None:
    """By the federation that was timed: 16 times the steps, 2 to the power 0.7 for each doubling; of a marked parameter
    the part that the space says. What is timed is one observation beside a level that is not known."""
    timed = {"local_steps": 5, "batch_size": 32, "lr": 0.1}
    dear = {**timed, "local_steps": 80}
    found, marked = (prices.learnt(space(cost), [], (timed, 0.2)) for cost in (None, 0.9))
    assert found is not None and marked is not None
    assert found.of_a_round(timed) == pytest.approx(0.2, rel=0.02)
    assert found.of_a_round(dear) / found.of_a_round(timed) == pytest.approx(16**0.7, rel=0.02)
    assert marked.of_a_round(dear) / marked.of_a_round(timed) == pytest.approx(16**0.9, rel=0.02)
    assert found.of_a_round({**timed, "lr": 1.0}) == found.of_a_round(timed)
    assert prices.learnt(space(), []) is None


def test_the_coefficients_are_where_the_posterior_is_largest() -> None:
    """Its logarithm, written out term by term, is maximised by a general optimiser."""
    listed, timed = drawn(6), {"local_steps": 20, "batch_size": 64, "lr": 0.1}
    rounds: Sequence[int] = (1, 3, 10, 10, 10, 2)
    trials = [
        ended(n, params, r * of_a_round(params) * (1.3 if n % 2 else 0.8), r)
        for n, (params, r) in enumerate(zip(listed, rounds, strict=True))
    ]
    found = prices.learnt(space(0.5), trials, (timed, 0.3))
    assert found is not None

    def worth(b: Any) -> float:
        def expected(params: Mapping[str, Any]) -> float:
            steps = math.log(params["local_steps"]) - math.log(5 * 100) / 2
            return float(b[0] + b[1] * steps + b[2] * (math.log(params["batch_size"]) - math.log(4 * 128) / 2))

        total = (math.log(0.3) - expected(timed)) ** 2 / 0.3**2
        for trial, r in zip(trials, rounds, strict=True):
            log = math.log(trial.user_attrs["seconds"] / r)
            total += (log - expected(trial.params)) ** 2 / (0.15**2 + 0.3**2 / r)
        return float(total + b[0] ** 2 / 100 + (b[1] - 0.5) ** 2 / 0.16 + (b[2] - 0.7) ** 2 / 0.16)

    best = minimize(worth, [0.0, 0.0, 0.0], method="BFGS", options={"gtol": 1e-9}).x
    assert found.coefficients == pytest.approx(list(best), abs=1e-5)


def test_a_trial_is_its_rounds_and_what_it_needs_beside_them() -> None:
    """The first two began before any had ended, and waited 9 and 11 seconds for their processes; of the others 0.5, 3
    and 4 seconds and the 2 that are expected the median is 2.5."""
    (params,) = drawn(1)
    spans = [(0.0, 14.0), (0.0, 16.0), (14.0, 19.5), (16.0, 24.0), (19.5, 28.5)]
    trials = [ended(n, params, 5.0, began=began, ended=end) for n, (began, end) in enumerate(spans)]
    assert prices.starts(trials) == (2.5, 10.0)
    assert prices.starts(trials[:2]) == (prices.START, 10.0) and prices.starts([]) == (prices.START, prices.COLD)
    found = prices.learnt(space(), trials, start=2.5)
    assert found is not None
    assert found.of_a_trial(params, 20) == pytest.approx(2.5 + 20 * found.of_a_round(params))


@pytest.mark.parametrize("races", [False, True])
def test_what_is_left_is_foretold_by_configuration(races: bool) -> None:
    """One trial ran all ten rounds, one was stopped after five; two run, one of them ten times as dear. A search counts
    the rounds that the stopped one was spared, a race does not. Results of earlier runs say nothing of this machine."""
    cheap, dear = ({"local_steps": steps, "batch_size": 8, "lr": 0.1} for steps in (10, 100))
    trials = [ended(0, cheap, 900.0), ended(1, cheap, 10.0), ended(2, dear, 50.0, rounds=5)]
    for number, params in ((3, dear), (4, cheap)):
        trials.append(frozen_trial(number, params, kinds=space().distributions()))
    asked = SimpleNamespace(taken=1, races=races, rounds=10)
    part = SimpleNamespace(experiment=asked, space=space())
    order = [(0, number) for number in range(5)]
    history: Any = History([part], [dict(enumerate(trials))], order)  # type: ignore[list-item]
    found = prices.forecast(history, (3, 4))
    assert found is not None
    assert found.coming == pytest.approx(60 / (15 if races else 20))
    price = prices.learnt(space(), trials[1:3])
    assert price is not None
    assert found.running == pytest.approx({3: price.of_a_round(dear), 4: price.of_a_round(cheap)})
    assert found.running[3] > 3 * found.running[4]
    nothing: Any = History([part], [dict(enumerate(trials[:1]))], order[:1])  # type: ignore[list-item]
    assert prices.forecast(nothing, ()) is None
