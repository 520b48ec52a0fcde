"""The rule by which a race trades new configurations against further seeds: its two formulas, and what it decides."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import FrozenTrial, TrialState
from scipy import integrate, stats

from analysis.estimate import standing
from fedtune.decisions.race import (
    FIRST,
    MOST,
    WINDOW,
    _of_rivals,
    further,
    gain,
    is_over,
    of_a_new_one,
    repeated,
)
from tests.fedtune.conftest import experiment
from tests.trials import frozen_trial


@pytest.mark.parametrize(("mean", "spread"), [(0.0, 1.0), (-0.3, 0.2), (0.4, 0.1), (-5.0, 0.5)])
def test_gain_is_an_integral(mean: float, spread: float) -> None:
    density = stats.norm(mean, spread).pdf
    expected = integrate.quad(lambda x: x * density(x), 0, mean + 12 * spread, limit=200, points=[max(mean, 0)])[0]
    assert gain(mean, spread) == pytest.approx(expected if mean + 12 * spread > 0 else 0.0, abs=1e-9)
    assert (gain(0.3, 0.0), gain(-0.3, 0.0)) == (0.3, 0.0)


@pytest.mark.parametrize("under_way", [0, 1, 3])
def test_how_far_one_more_value_moves_a_mean(under_way: int) -> None:
    """By simulation: the mean after under_way + 1 values, less the mean after under_way ones."""
    variance, noise, n = 0.5, 2.0, 200_000
    rng = np.random.default_rng(0)
    true = rng.normal(0, np.sqrt(variance), n)
    values = true + rng.normal(0, np.sqrt(noise), (under_way + 1, n))
    shrunk = [values[:k].sum(axis=0) / (k + noise / variance) for k in (under_way, under_way + 1)]
    assert further(variance, noise, under_way) == pytest.approx(np.std(shrunk[1] - shrunk[0]), rel=0.02)
    assert further(0.0, noise, under_way) == 0.0
    assert further(2.25, 0.0, 0) == 1.5 and further(2.25, 0.0, 1) == 0.0
    assert further(1.0, 0.5, 0) == pytest.approx(1 / np.sqrt(1.5)) and further(-1e-12, noise, under_way) == 0.0


def trial(number: int, x: float, value: float | None = None, seed: int = 0, of: int | None = None) -> FrozenTrial:
    """A federation: completed with `value`, or failed."""
    state = TrialState.FAIL if value is None else None
    return frozen_trial(
        number, {"x": x}, value, state, kinds={"x": FloatDistribution(0, 10)}, seed=seed, rounds=5, of=of
    )


def decided(*known: FrozenTrial, running: tuple[FrozenTrial, ...] = (), sign: float = 1.0, **more: bool) -> int | None:
    return repeated(known, running, sign=sign, rounds=5, most=3, **more)


#: Two good configurations, close together, and others that are far below: neighbours tell nothing of one another.
VALUES = (0.30, 0.80, 0.31, 0.79, 0.30, 0.32, 0.29, 0.33)


def tried(sign: float = 1.0, count: int = len(VALUES)) -> list[FrozenTrial]:
    places = (0.0, 5.0, 1.0, 9.0, 2.0, 7.0, 3.0, 4.0)
    return [trial(n, x, sign * v) for n, (x, v) in enumerate(zip(places, VALUES, strict=True))][:count]


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_further_seed_goes_to_one_of_the_two_that_could_win(sign: float) -> None:
    assert decided(*tried(sign), sign=sign, new=False) in (1, 3)


def test_the_numbers_of_the_guide() -> None:
    """docs/racing.md: six configurations before any second seed, the last ten, ten seeds at most."""
    assert (FIRST, WINDOW, MOST) == (6, 10, 10)


def test_no_configuration_gets_a_second_seed_before_the_first_few_are_tried() -> None:
    assert decided(*tried(count=FIRST - 1)) is None
    # Where there is nothing new, the one with the fewest seeds is next, of equal ones the first.
    assert decided(*tried(count=1), new=False) == 0
    assert decided(*tried(count=1), trial(1, 0.0, 0.3, seed=1, of=0), running=(trial(2, 9.0, 0.1),), new=False) == 2


def test_the_second_seeds_begin_with_the_first_few_tried() -> None:
    assert decided(*tried(count=FIRST)) in (1, 3)


def test_where_all_values_are_the_same_the_new_comes_before_the_old_and_the_first_before_the_last() -> None:
    """Nothing promises anything then, and a further seed must promise more than a new configuration."""
    same = [trial(n, float(n), 0.5) for n in range(FIRST + 1)]
    assert decided(*same) is None
    assert decided(*same, new=False) == 0


@dataclass
class Believed:
    """A model of rivals whose probabilities are given: `odds[i]` that rival i is better than the best, 0."""

    mean: tuple[float, ...]
    odds: tuple[float, ...]
    own: float = 1.0

    def better(self, one: int, other: int) -> float:
        return self.odds[one] if other == 0 else 0.5


@pytest.mark.parametrize(
    ("odds", "expected"),
    [((0.5, 0.06, 0.05, 0.4), {0, 1, 3}), ((0.5, 0.04, 0.2), {0, 2}), ((0.5, 0.3), {0, 1}), ((0.5,), set())],
)
def test_who_is_surely_worse_than_the_best_is_dropped(odds: tuple[float, ...], expected: set[int]) -> None:
    """A risk of one in twenty; a single rival has nobody to be compared with."""
    known = [trial(n, float(n), 0.5) for n in range(len(odds))]
    believed = Believed(tuple(0.5 - 0.1 * n for n in range(len(odds))), odds)
    everyone = range(len(odds))
    found: Any = SimpleNamespace(belief=believed, numbers=everyone, ranking=everyone, beside=[1.0] * len(odds))
    assert _of_rivals(found, known, [], most=3).keys() == expected


def test_a_search_is_over_with_its_last_trial(tmp_path: Path) -> None:
    made = experiment(tmp_path / "run", trials=3)
    trials = [trial(n, float(n), 0.5) for n in range(3)]
    assert is_over(trials, made) and not is_over(trials[:2], made)
    assert not is_over(trials[:2], dataclasses.replace(made, trials=4))


def test_nobody_gets_more_seeds_than_there_are() -> None:
    often = [trial(10 + k, 5.0, 0.8, seed=k, of=1) for k in (1, 2)]
    again = [trial(20 + k, 9.0, 0.79, seed=k, of=3) for k in (1, 2)]
    assert decided(*tried(), *often, new=False) != 1
    assert decided(*tried(), *often, *again, new=False) not in (1, 3, None)
    assert decided(*tried(), *often[:1], running=tuple(often[1:]), new=False) != 1


def test_where_everything_failed_nobody_gets_a_seed() -> None:
    assert decided(trial(0, 1.0), trial(1, 2.0), new=False) is None


def test_what_was_stopped_comes_last_of_those_with_as_few_seeds() -> None:
    stopped = trial(0, 1.0, 0.1)
    stopped.state, stopped.values, stopped.intermediate_values = TrialState.PRUNED, None, {2: 0.1}
    assert decided(stopped, running=(trial(1, 2.0, 0.2),), new=False) == 1
    assert decided(stopped, new=False) == 0


def raised(mean: float, spread: float, other: float) -> float:
    """E[max(N(mean, spread²), other)] - max(mean, other), by quadrature on either side of the kink."""
    density, ends = stats.norm(mean, spread).pdf, (mean - 12 * spread, mean + 12 * spread)
    kink = min(max(other, ends[0]), ends[1])
    below = other * integrate.quad(density, ends[0], kink)[0]
    above = integrate.quad(lambda x: x * density(x), kink, ends[1], epsabs=1e-12)[0]
    return float(below + above) - max(mean, other)


def test_what_a_further_seed_is_worth_to_every_rival() -> None:
    """The knowledge gradient: by how much the best mean is expected to rise when one more value is known."""
    known = [*tried(), trial(8, 5.0, 0.78, seed=1, of=1)]
    found = standing(known, 1.0)
    assert found is not None
    mean, variance, noise = found.belief.mean, found.belief.beside(found.able), found.belief.own
    gains = _of_rivals(found, known, [trial(9, 9.0, 0.8, seed=1, of=3)], most=3)
    assert {1, 3} <= gains.keys()
    for number, gained in gains.items():
        i = found.numbers.index(number)
        rest = max(m for j, m in enumerate(mean) if j != i)
        v = float(variance[i])
        if number == 3:  # one of its seeds is under way
            v = v * noise / (v + noise)
        assert gained == pytest.approx(raised(float(mean[i]), v / np.sqrt(v + noise), float(rest)), rel=1e-4, abs=1e-7)
    # Who is sure to be worse is dropped.
    best = found.ranking[0]
    for i, number in enumerate(found.numbers):
        if i != best:
            assert (number in gains) == (found.belief.better(i, best) > 0.05)


@pytest.mark.parametrize("rounds", [(5,) * 8, (5, 2, 2, 1, 2, 1, 1, 2), (0, 0, 0, 1, 0, 0, 0, 0)])
def test_what_a_new_configuration_is_worth_for_its_cost(rounds: tuple[int, ...]) -> None:
    """One like the last ten, whose mean is drawn anew and known by one noisy value: by how much it is expected to beat
    the best, per federation."""
    known = [*[trial(n, x, 0.6) for n, x in enumerate((0.5, 1.5, 2.5))], *tried()]
    for n, t in enumerate(known):
        t.number = n
        t.user_attrs["rounds"] = 5 if n < 3 else rounds[n - 3]
    found = standing(known, 1.0)
    assert found is not None and found.numbers == tuple(range(11))
    mean, variance = found.belief.mean[1:], found.belief.beside(found.able)[1:]
    cost = max((5 + 5 + sum(rounds)) / 10 / 5, 1 / 5)
    v = float(np.mean((mean - mean.mean()) ** 2) + variance.mean())
    for noise in (0.0, found.belief.own, 4 * v):
        moves = v / np.sqrt(v + noise)
        expected = raised(float(mean.mean()), moves, float(found.belief.mean.max())) / cost
        assert of_a_new_one(found, known, 5, noise) == pytest.approx(expected, rel=1e-4, abs=1e-7)
        assert noise > 0 or of_a_new_one(found, known, 5) == of_a_new_one(found, known, 5, noise)


def test_a_new_configuration_competes_by_one_value_of_it() -> None:
    """Not by its mean, which one federation does not tell: some of these races would decide otherwise then."""
    rng, otherwise = np.random.default_rng(0), 0
    for _ in range(40):
        known = [trial(n, float(x), float(v)) for n, (x, v) in enumerate(rng.random((8, 2)) * (10, 1))]
        best = max(range(8), key=lambda n: known[n].values[0])
        known.append(trial(8, known[best].params["x"], float(rng.random()), seed=1, of=best))
        found = standing(known, 1.0)
        assert found is not None
        gains = _of_rivals(found, known, [], most=3)
        most = max(gains.values(), default=0.0)
        by_value = of_a_new_one(found, known[:8], 5, found.belief.own)
        assert (decided(*known) is None) == (by_value >= most)
        otherwise += by_value < most <= of_a_new_one(found, known[:8], 5)
    assert otherwise > 0


def test_a_new_configuration_costs_at_least_a_round() -> None:
    known = [trial(0, 1.0, 0.3), trial(1, 2.0, 0.5), *[trial(2 + n, 3.0 + n / 10) for n in range(10)]]
    for t in known:
        t.user_attrs["rounds"] = 0
    found = standing(known, 1.0)
    assert found is not None
    assert of_a_new_one(found, known, 5) == 0.0, "all of the last ten failed"
    known = [trial(n, 1.0 + n, 0.3 + 0.1 * n) for n in range(4)]
    found = standing(known, 1.0)
    assert found is not None
    whole = of_a_new_one(found, known, 5)
    for t in known:
        t.user_attrs["rounds"] = 0
    assert whole > 0 and of_a_new_one(found, known, 5) == pytest.approx(5 * whole)
