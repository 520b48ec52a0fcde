"""The prior is a truncated normal around the paper's values, and its share of a search falls as the docstring says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedtune.decisions.known_points import KnownPoints, Point, draw, share
from fedtune.decisions.optuna_samplers import SAMPLERS, STARTUP
from fedtune.record.experiment import Experiment
from fedtune.record.journal import StudyFile
from search_spaces.dimension import Dimension
from search_spaces.parameter import Parameter
from search_spaces.space import Space
from tests.fedtune.conftest import experiment, space, start
from tests.fedtune.execution.test_queue import conduct

COUNT = 4000


def drawn(*dimensions: Dimension, width: float = 0.25, count: int = COUNT) -> list[dict[str, Any]]:
    """Draws of `count` trials that see no others."""
    space = Space("s", "m", {d.key: d for d in dimensions})
    found = [draw(space, width, 1, number, 0) for number in range(count)]
    assert all(values is not None and space.contains(values) for values in found)
    return found  # type: ignore[return-value]


def real(default: float, low: float, high: float, *, log: bool = False, step: float | None = None) -> Dimension:
    return Dimension(Parameter("x", "real", default, "", low=-10.0, high=1000.0), low, high, log, step)


def integer(default: int, low: int, high: int, *, log: bool = False, step: int | None = None) -> Dimension:
    return Dimension(Parameter("x", "integer", default, "", low=-10, high=1000), low, high, log, step)


def normal(centre: float, width: float) -> Any:
    """The prior on the unit interval, as SciPy has it."""
    return stats.truncnorm(-centre / width, (1 - centre) / width, centre, width)


@pytest.mark.parametrize(
    ("dimension", "centre"),
    [
        (real(0.5, 0.0, 2.0), 0.25),
        (real(0.01, 0.001, 0.1, log=True), 0.5),
        (real(0.01, 0.01, 1.0, log=True), 0.0),
        (real(5.0, 0.0, 2.0), 1.0),
        (real(-5.0, 1.0, 2.0), 0.0),
    ],
)
@pytest.mark.parametrize("width", [0.05, 0.25, 1.0])
def test_numbers_follow_the_truncated_normal(dimension: Dimension, centre: float, width: float) -> None:
    low, high = dimension.low, dimension.high
    assert low is not None and high is not None
    x = np.array([values["x"] for values in drawn(dimension, width=width)])
    unit = np.log(x / low) / np.log(high / low) if dimension.log else (x - low) / (high - low)
    assert stats.kstest(unit, normal(centre, width).cdf).pvalue > 0.001  # the seed is fixed: no chance of failure


@pytest.mark.parametrize(
    ("dimension", "edges", "points"),
    [
        # Each whole number or step has as much room as the others: [low - 1/2 step, high + 1/2 step].
        (integer(2, 1, 4), np.linspace(0, 1, 5), [1, 2, 3, 4]),
        (integer(5, 1, 9, step=4), np.linspace(0, 1, 4), [1, 5, 9]),
        (real(0.3, 0.1, 0.5, step=0.2), np.linspace(0, 1, 4), [0.1, 0.3, 0.5]),
        (integer(2, 1, 4, log=True), np.log(np.array([0.5, 1.5, 2.5, 3.5, 4.5]) / 0.5) / np.log(9), [1, 2, 3, 4]),
    ],
)
def test_steps_have_their_part_of_it(dimension: Dimension, edges: Any, points: list[float]) -> None:
    found = [values["x"] for values in drawn(dimension)]
    assert set(found) == set(points) and {type(x) for x in found} == {type(points[0])}
    default = points.index(dimension.parameter.default)  # type: ignore[arg-type]
    if dimension.log:
        centre = float(np.log(points[default] / 0.5) / np.log(9))
    else:
        centre = float(edges[default] + edges[default + 1]) / 2
    expected = np.diff(normal(centre, 0.25).cdf(edges)) / (normal(centre, 0.25).cdf(1)) * COUNT
    assert stats.chisquare([found.count(point) for point in points], expected).pvalue > 0.001


def test_a_dimension_of_one_value_has_it() -> None:
    assert {values["x"] for values in drawn(real(0.5, 0.5, 0.5), count=20)} == {0.5}
    assert {values["x"] for values in drawn(integer(3, 3, 3), count=20)} == {3}


@pytest.mark.parametrize(("width", "part"), [(0.25, 4 / 6), (0.125, 8 / 10), (1.0, 1 / 3)])
def test_the_default_option_has_a_higher_weight(width: float, part: float) -> None:
    kind = Dimension(Parameter("x", "choice", "b", "", options=("a", "b", "c")), options=("a", "b", "c"))
    found = [values["x"] for values in drawn(kind, width=width)]
    assert stats.binomtest(found.count("b"), COUNT, part).pvalue > 0.001
    assert stats.binomtest(found.count("a"), COUNT, (1 - part) / 2).pvalue > 0.001
    flag = drawn(Dimension(Parameter("x", "flag", True, "")), width=0.25)
    assert stats.binomtest(sum(values["x"] for values in flag), COUNT, 4 / 5).pvalue > 0.001
    apart = Dimension(Parameter("x", "choice", "b", "", options=("a", "b", "c")), options=("a", "c"))
    found = [values["x"] for values in drawn(apart, width=width)]
    assert stats.binomtest(found.count("a"), COUNT, 1 / 2).pvalue > 0.001


def test_parameters_of_an_option_are_drawn_with_it() -> None:
    inner = Parameter("mu", "real", 0.1, "", low=0.0, high=1.0)
    kind = Parameter("kind", "choice", "b", "", options=("a", "b"), children={"b": (inner,)})
    found = drawn(Dimension(kind, options=("a", "b"), children={"b": (Dimension(inner, 0.0, 1.0),)}), count=200)
    assert {len(values) for values in found} == {1, 2}


def test_its_share_falls_as_stated() -> None:
    assert [share(seen) for seen in (0, 5, 6, 12, 30, 600)] == [1.0, 1.0, 0.5, 0.25, 0.1, 0.005]
    space = Space("s", "m", {"x": real(0.5, 0.0, 1.0)})
    for seen, expected in ((6, 0.5), (30, 0.1)):
        count = sum(draw(space, 0.25, 7, number, seen) is not None for number in range(COUNT))
        assert stats.binomtest(count, COUNT, expected).pvalue > 0.001


def test_it_depends_on_seed_and_number_only() -> None:
    space = Space("s", "m", {"x": real(0.5, 0.0, 1.0)})
    assert draw(space, 0.25, 1, 3, 0) == draw(space, 0.25, 1, 3, 5)
    assert len({str(draw(space, 0.25, seed, number, 0)) for seed in range(3) for number in range(3)}) == 9


def test_a_search_draws_by_its_seed_the_trial_and_what_it_may_see(tmp_path: Path) -> None:
    points = KnownPoints(experiment(tmp_path, prior=0.25, seed=5), space())
    drawn = 0
    for number in range(40):
        for seen in (0, 7, 11):
            expected = draw(space(), 0.25, 5, number, seen)
            assert points.of(number, seen) == (None if expected is None else Point(expected, "the prior"))
            drawn += expected is not None
    assert 40 < drawn < 120


def origins(folder: Path) -> list[str | None]:
    return [trial.user_attrs.get("from") for trial in StudyFile(folder).study.trials]


@pytest.mark.parametrize("sampler", [name for name in SAMPLERS if name != "grid"])
def test_a_search_begins_with_draws_and_goes_on_with_fewer(tmp_path: Path, sampler: str) -> None:
    found = conduct(tmp_path / "run", 2, sampler=sampler, prior=0.125, trials=30)
    told = origins(tmp_path / "run")
    lag = Experiment.read(tmp_path / "run").lag
    assert told[: STARTUP + lag - 1] == ["the prior"] * (STARTUP + lag - 1), "these see fewer than six trials"
    assert 0 < told[STARTUP + lag - 1 :].count("the prior") < 15 and None in told
    early = np.array([[params["alpha"] / 2, params["lambda"]] for _, _, params, *_ in found[:9]])
    assert np.abs(early - [0.25, 0.5]).mean() < 0.2, "uniform draws would be 0.28 away on average"
    assert conduct(tmp_path / "cut", 3, sessions=2, sampler=sampler, prior=0.125, trials=30) == found


def test_the_other_proposals_of_a_random_search_stay(tmp_path: Path) -> None:
    off = conduct(tmp_path / "off", 1, sampler="random", scheduler="none", trials=30)
    on = conduct(tmp_path / "on", 1, sampler="random", scheduler="none", trials=30, prior=0.25)
    told = origins(tmp_path / "on")
    assert None in told and set(origins(tmp_path / "off")) == {None}
    assert all((a[2] == b[2]) == (origin is None) for a, b, origin in zip(on, off, told, strict=True))


def test_known_points_come_before_it_and_taken_results_count(tmp_path: Path) -> None:
    first = ({"from": "the paper's values", "values": {"alpha": 0.5, "lambda": 0.5}},)
    conduct(tmp_path / "run", 1, prior=0.25, trials=3, first=first)
    assert origins(tmp_path / "run") == ["the paper's values", "the prior", "the prior"]
    made = start(tmp_path / "warm", taken=40, trials=60, lag=4)
    assert [made.seen(n) for n in (0, 3, 40, 42, 43, 44, 50)] == [0, 3, 40, 40, 40, 41, 47]
