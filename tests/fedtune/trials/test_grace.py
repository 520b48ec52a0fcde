"""`--grace auto` against numbers worked out by hand, and as a part of a search."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest

from analysis.stopping import Correlation, Grace, grace
from fedtune.record.study import StudyFile
from fedtune.trials.early_stopping import History, Never
from fedtune.trials.grace import FIRST, AutoGrace, candidates, chosen, correlation, interval
from fedtune.trials.stop_rules import StopRules
from tests.fedtune.conftest import experiment
from tests.fedtune.trials.test_queue import conduct

pytestmark = pytest.mark.usefixtures("study_in_memory")


def ranked(early: Sequence[float], last: Sequence[float] | None = None, rounds: int = 6) -> list[History]:
    """Trials of `rounds` rounds with these values after round 2, and the last ones 1, 2, 3, … unless told otherwise."""
    ends = range(1, len(early) + 1) if last is None else last
    return [History(rounds, {2: (e,), rounds: (float(f),)}) for e, f in zip(early, ends, strict=True)]


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [(1, []), (2, [1]), (3, [1, 2]), (8, [1, 2, 3, 4]), (9, [1, 2, 3, 4, 6]), (12, [1, 2, 3, 4, 6, 8])],
)
def test_candidates_double_in_two_steps_up_to_two_thirds(rounds: int, expected: list[int]) -> None:
    assert candidates(rounds) == expected


def test_candidates_of_a_long_trial_are_few() -> None:
    assert candidates(100) == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]
    assert len(candidates(100_000)) < 40


def test_the_interval_is_that_of_a_z_score() -> None:
    # z = artanh 0.5 = 0.549306; its deviation is √((1 + 0.25/2) / 3) = 0.612372; 1.644854 of these are 1.007263.
    assert interval(0.5, 6) == pytest.approx((math.tanh(0.549306 - 1.007263), math.tanh(0.549306 + 1.007263)), abs=1e-5)
    low, high = interval(-0.5, 6)
    assert (-high, -low) == pytest.approx(interval(0.5, 6))


def test_ranks_that_agree_in_full_are_not_certain() -> None:
    # Six ranks: the next value below 1 is 1 - 12/210, half of the way is 1 - 6/210.
    assert interval(1.0, 6) == (pytest.approx(interval(1 - 6 / 210, 6)[0]), 1.0)
    assert interval(-1.0, 6) == (-1.0, pytest.approx(-interval(1.0, 6)[0]))
    assert 0.7 < interval(1.0, 6)[0] < 0.8
    half = 1.644854 * math.sqrt((1 + (204 / 210) ** 2 / 2) / 3)
    assert interval(1.0, 6)[0] == pytest.approx(math.tanh(math.atanh(204 / 210) - half), abs=1e-6)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.8])
@pytest.mark.parametrize("n", [6, 12])
def test_the_lower_end_is_seldom_above_the_truth(rho: float, n: int) -> None:
    """Of normally distributed pairs, whose rank correlation is 6/π · arcsin(r/2), one time in twenty, or less."""
    r = 2 * math.sin(math.pi * rho / 6)
    rng = np.random.default_rng(1)
    a = rng.normal(size=(2000, n))
    b = r * a + math.sqrt(1 - r * r) * rng.normal(size=(2000, n))
    ranks = [np.argsort(np.argsort(x, axis=1), axis=1) for x in (a, b)]
    found = 1 - 6 * ((ranks[0] - ranks[1]) ** 2).sum(axis=1) / (n * (n * n - 1))
    assert np.mean([interval(float(value), n)[0] > rho for value in found]) < 0.07


def test_a_correlation_is_of_ranks() -> None:
    # The first two ranks swapped: ρ = 1 - 6 · 2 / (6 · 35).
    found = correlation(ranked([2, 1, 3, 40, 500, 6000]), 2, 6)
    assert found.rho == 0.942857, "six decimals"
    assert found.rho == pytest.approx(1 - 12 / 210, abs=1e-6)
    assert (found.low, found.high) == pytest.approx(interval(1 - 12 / 210, 6), abs=1e-6)


def test_nothing_is_known_where_values_are_missing_or_all_the_same() -> None:
    nothing = Correlation(2, None, None, None)
    assert correlation(ranked([1, 1, 1, 1, 1, 1]), 2, 6) == nothing
    assert correlation(ranked([1, 2, 3, 4, 5, 6], [1] * 6), 2, 6) == nothing
    assert correlation(ranked([1, 2, 3, 4, 5, math.nan]), 2, 6) == nothing, "five are too few"
    assert correlation(ranked([1, 2, 3, 4, 5, 6]), 1, 6) == Correlation(1, None, None, None), "not evaluated by then"
    assert correlation(ranked([1, 2, 3, 4, 5, math.inf, 6]), 2, 6).rho == 1.0


def test_a_round_that_was_not_evaluated_has_the_value_before() -> None:
    assert correlation(ranked([1, 2, 3, 4, 5, 6]), 3, 6).rho == 1.0


def test_the_first_round_that_is_surely_good_is_chosen() -> None:
    order = np.arange(8.0)
    noisy = order[[3, 0, 2, 1, 6, 7, 4, 5]]  # its ρ is 1 - 6 · 30 / 504 = 0.64: not surely above 0.5 of eight trials
    trials = [History(9, {1: (a,), 2: (b,), 3: (c,), 9: (c,)}) for a, b, c in zip(-order, noisy, order, strict=True)]
    found = chosen(trials, 9)
    assert found.round == 3 and found.trials == 8
    assert [c.round for c in found.correlations] == [1, 2, 3, 4, 6]
    assert [c.rho for c in found.correlations] == pytest.approx([-1.0, 1 - 180 / 504, 1.0, 1.0, 1.0], abs=1e-6)
    assert chosen([History(9, {1: (-a,), 9: (a,)}) for a in order], 9).round is None


def test_an_interval_that_only_touches_the_limit_is_not_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    lows = {1: 0.4, 2: 0.5, 3: 0.500001, 4: 0.9, 6: 0.9}
    made = lambda trials, round_, rounds: Correlation(round_, 0.9, lows[round_], 1.0)  # noqa: E731
    monkeypatch.setattr("fedtune.trials.grace.correlation", made)
    assert chosen(ranked([1, 2, 3, 4, 5, 6]), 9).round == 3


def test_a_choice_waits_for_the_first_trials_and_then_stays() -> None:
    good, bad = ranked([1, 2, 3, 4, 5, 6]), ranked([9, 8, 7, 6], [10, 20, 30, 40])
    auto = AutoGrace(6)
    assert FIRST == 6 and auto.after(good[:5]) is None
    first = auto.after(good)
    assert first is not None and (first.round, first.trials) == (2, 6)
    assert auto.after([*good, *bad]) == first, "later trials change nothing"
    assert auto.after(good[:5]) is None, "an earlier trial is told what it was told"


def test_as_long_as_nothing_is_chosen_every_trial_counts() -> None:
    auto = AutoGrace(6)
    bad, rest = ranked([2, 1, 4, 3, 6, 5]), ranked([7, 8, 9, 10], [7, 8, 9, 10])
    # ρ is 1 - 6 · 6 / 210 = 0.83 of six, 1 - 36/336 = 0.89 of seven, 1 - 36/504 = 0.93 of eight.
    counts = [auto.after([*bad, *rest[:k]]) for k in range(5)]
    rhos = [next(c.rho for c in found.correlations if c.round == 2) for found in counts if found is not None]
    assert rhos[:2] == pytest.approx([1 - 36 / 210, 1 - 36 / 336], abs=1e-6)
    assert interval(1 - 36 / 336, 7)[0] < 0.5 < interval(1 - 36 / 504, 8)[0]
    assert [found and (found.round, found.trials) for found in counts] == [(None, 6), (None, 7), *[(2, 8)] * 3]
    # Asked for all at once, the answer is the same.
    assert AutoGrace(6).after([*bad, *rest]) == counts[-1]
    assert auto.after(bad) == counts[0]


def test_a_configuration_counts_once_and_a_failed_trial_not_at_all() -> None:
    rules = StopRules(experiment(Path("run"), grace="auto", rounds=6))
    states = optuna.trial.TrialState

    def trial(x: float, state: Any = states.COMPLETE) -> Any:
        floats = {"x": optuna.distributions.FloatDistribution(0, 100)}
        value = x if state == states.COMPLETE else None
        values = {2: x, 6: x} if state == states.COMPLETE else {2: x}
        return optuna.trial.create_trial(
            state=state, value=value, params={"x": x}, distributions=floats, intermediate_values=values
        )

    five = [trial(float(x)) for x in range(5)]
    others = [trial(3.0), trial(4.0), trial(50.0, states.FAIL), trial(60.0, states.PRUNED)]
    assert rules.note([*five, *others], []) == {} and rules.rule([*five, *others]) == Never()
    noted = rules.note([*five, *others, trial(70.0)], [])["grace"]
    assert (noted["round"], noted["trials"]) == (2, 6)


def searched(folder: Path, width: int = 1, order: int = 1, sessions: int = 1, **changes: Any) -> list[Any]:
    # Proposals at random, so that many are worth stopping.
    conduct(folder, width, order, sessions, **{"grace": "auto", "trials": 20, "sampler": "random", **changes})
    study = StudyFile(folder)
    found = study.trials()
    study.close()
    return found


def facts(trials: Sequence[Any]) -> list[tuple[Any, ...]]:
    return [(t.number, t.state, t.params, t.values, t.intermediate_values, t.user_attrs) for t in trials]


@pytest.mark.parametrize("scheduler", ["asha", "median"])
def test_a_search_that_chooses_is_one_search(tmp_path: Path, scheduler: str) -> None:
    """Whatever runs side by side, and however often it is interrupted."""
    one = searched(tmp_path / "one", scheduler=scheduler)
    record = grace(one)
    assert record.round is not None and record.trials >= FIRST
    stopped = [t for t in one if t.state.name == "PRUNED"]
    assert stopped and min(t.user_attrs["rounds"] for t in stopped) >= record.round
    # Trial n is told by trials 0 … n - 4: the first to be told by six is number 9.
    assert min(t.number for t in stopped) >= FIRST + 3
    noted = [t.number for t in one if "grace" in t.user_attrs]
    assert noted[0] == FIRST + 3 and grace(one[: noted[-1] + 1]) == record
    assert [one[n].user_attrs["grace"]["round"] for n in noted[:-1]] == [None] * (len(noted) - 1)
    assert facts(searched(tmp_path / "four", 4, -1, scheduler=scheduler)) == facts(one)
    assert facts(searched(tmp_path / "killed", 3, 1, sessions=2, scheduler=scheduler)) == facts(one)


def test_what_is_recorded_is_read_again(tmp_path: Path) -> None:
    made = Grace(3, 7, (Correlation(1, None, None, None), Correlation(3, 0.9, 0.5, 0.99)))
    trial = optuna.trial.create_trial(value=1.0, user_attrs={"grace": made.to_attribute()})
    plain = optuna.trial.create_trial(value=1.0)
    assert grace([plain, trial, plain]) == made
    assert grace([plain]) == Grace(None, 0, ())
    damaged = [
        {"round": 3},
        {"round": "x", "trials": 1, "correlations": []},
        [],
        7,
        {**made.to_attribute(), "trials": {}},
    ]
    for data in damaged:
        spoilt = optuna.trial.create_trial(value=1.0, user_attrs={"grace": data})
        assert grace([trial, spoilt]) == made


def test_rungs_that_tell_nothing_are_seldom_chosen() -> None:
    """Eight rounds that tell nothing, each looked at after each of 20 trials: of 100 searches few choose one."""
    rng, chose = np.random.default_rng(0), 0
    for _ in range(100):
        values = rng.normal(size=(20, 13))
        trials = [History(12, {r: (float(row[r]),) for r in range(1, 13)}) for row in values]
        found = AutoGrace(12).after(trials)
        chose += found is not None and found.round is not None
    assert chose <= 10
