"""The rule by which a race trades new configurations against further seeds: its two formulas, and what it decides."""

from __future__ import annotations

import numpy as np
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial
from scipy import integrate, stats

from fedtune.trials.racing import FIRST, further, gain, repeated
from search_spaces import run_folder


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


def trial(number: int, x: float, value: float | None = None, seed: int = 0, of: int | None = None) -> FrozenTrial:
    """A federation: completed with `value`, or failed."""
    found = create_trial(
        state=TrialState.FAIL if value is None else TrialState.COMPLETE,
        value=value,
        params={"x": x},
        distributions={"x": FloatDistribution(0, 10)},
        user_attrs={"seed": seed, "rounds": 5} | ({} if of is None else {run_folder.OF: of}),
    )
    found.number = number
    return found


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


def test_no_configuration_gets_a_second_seed_before_the_first_few_are_tried() -> None:
    assert decided(*tried(count=FIRST - 1)) is None
    # Where there is nothing new, the one with the fewest seeds is next, of equal ones the first.
    assert decided(*tried(count=1), new=False) == 0
    assert decided(*tried(count=1), trial(1, 0.0, 0.3, seed=1, of=0), running=(trial(2, 9.0, 0.1),), new=False) == 2


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
