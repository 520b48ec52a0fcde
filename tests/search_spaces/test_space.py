"""Dimensions and Optuna distributions are the same thing in two languages; spaces survive JSON."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from search_spaces.dimension import Dimension, reachable
from search_spaces.parameter import Parameter, parameters
from search_spaces.space import Space
from tests.search_spaces.conftest import Config

DECLARED = parameters(Config)
finite = st.floats(-1e6, 1e6, allow_nan=False).filter(lambda v: v == 0 or abs(v) > 1e-6)


@st.composite
def dimensions(draw: Any) -> Dimension:
    """Any dimension a declaration allows."""
    kind = draw(st.sampled_from(["real", "integer", "choice", "flag"]))
    name = draw(st.sampled_from(["a", "lambda_", "x_y"]))
    if kind == "flag":
        return Dimension(Parameter(name, kind, True, "doc"))
    if kind == "choice":
        options = tuple(draw(st.lists(st.text("abcxyz_", min_size=1), min_size=1, max_size=5, unique=True)))
        chosen = tuple(draw(st.lists(st.sampled_from(options), min_size=1, unique=True)))
        return Dimension(Parameter(name, kind, options[0], "doc", options=options), options=chosen)
    number = finite if kind == "real" else st.integers(-1000, 1000)
    low, high = sorted([draw(number), draw(number)])
    log = bool(low >= 1 and draw(st.booleans()))
    step = None
    if not log and draw(st.booleans()):
        step = draw(st.sampled_from([0.1, 0.25, 3.0])) if kind == "real" else draw(st.integers(2, 50))
        if kind == "real":  # Optuna counts steps in decimals; a low of 1/3 has none of its own
            low, high = round(low, 3), round(max(high, low), 3)
        high = min(high, low + step * 1000)
        high = reachable(low, high, step)
    grid = tuple(draw(st.lists(st.sampled_from([low, high]), min_size=1, unique=True))) if draw(st.booleans()) else None
    return Dimension(
        Parameter(name, kind, low, "doc", low=low, high=high, log=log, step=step), low, high, log, step, grid=grid
    )


@given(dimensions())
def test_a_space_survives_json(dimension: Dimension) -> None:
    space = Space(
        "s",
        "m",
        {dimension.key: dimension},
        "Title",
        "Source",
        {"rho": 3, "base": "x"},
        {"small": {"seeds": 2}, "paper": {}},
        ("heatmap",),
        ("val_amp", "val_global_accuracy"),
        True,
        vary={
            "rho": Dimension(DECLARED["rho"], 5, 40, grid=(40, 5)),
            "dataset": Dimension(DECLARED["dataset"], options=("a",)),
        },
    )
    assert Space.from_json(json.loads(json.dumps(space.to_json(), allow_nan=False))) == space


@pytest.mark.parametrize("key", sorted(DECLARED.keys() - {"open", "dataset"}))
def test_what_space_json_holds_is_what_json_gives_back(key: str) -> None:
    """Lists, not tuples: a reader that is given the data itself sees what one of the file sees."""
    space = Space("s", "m", {key: Dimension.of(DECLARED[key])})
    data = space.to_json()
    data["search"] = json.loads(json.dumps(data["search"]))
    assert data["search"] == space.to_json()["search"] and Space.from_json(data) == space


def test_a_number_without_a_grid_has_five_values_unless_others_are_asked_for() -> None:
    alpha = Dimension(DECLARED["alpha"], 0.0, 2.0)
    space = Space("s", "m", {"alpha": alpha})
    expected = [0.0, 0.5, 1.0, 1.5, 2.0]
    assert list(alpha.values()) == [point["alpha"] for point in space.grid_points()] == expected
    assert (space.cells(), space.cells(3), len(space.grid_points(3))) == (5, 3, 3)
    third = Dimension(DECLARED["alpha"], 1 / 3, 1.0)  # its ends are kept to the last digit
    assert third.values(3) == (1 / 3, 0.666666666667, 1.0)
    one = Space("s", "m", {"alpha": alpha}, one_at_a_time=True)
    assert (one.cells(), one.cells(3)) == (5, 4)  # the default, 0.5, is among the five and not among the three


@given(dimensions(), st.integers(1, 7))
def test_grid_values_are_distinct_points_of_the_dimension(dimension: Dimension, points: int) -> None:
    values = dimension.values(points)
    assert len(set(values)) == len(values) >= 1
    assert all(dimension.contains(value) for value in values)
    if dimension.parameter.kind in ("real", "integer") and dimension.grid is None:
        assert len(values) <= points


@given(dimensions())
def test_what_optuna_suggests_is_inside_and_arrives_unchanged(dimension: Dimension) -> None:
    space = Space("s", "m", {dimension.key: dimension})
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    trial = study.ask()
    values = space.suggest(trial)
    assert space.contains(values)
    assert space.params(values) == trial.params
    assert space.values(trial.params) == values
    assert trial.distributions == space.distributions()


def test_contains_refuses_what_lies_outside() -> None:
    alpha = Dimension(DECLARED["alpha"], 0.25, 1.5)
    assert alpha.contains(0.25) and alpha.contains(1.5) and alpha.contains(1)
    assert not any(alpha.contains(bad) for bad in (0.2, 1.6, math.nan, math.inf, "1", True, None))
    decay = Dimension(DECLARED["decay"], 0.0, 0.9, step=0.3)
    assert decay.contains(0.6) and not decay.contains(0.5)
    even = Dimension.of(DECLARED["even"])
    assert even.contains(4) and not even.contains(5) and not even.contains(4.5)
    assert not Dimension(DECLARED["merge_op"], options=("mul",)).contains("add")
    assert not Dimension(DECLARED["use_ema"]).contains(1)


def test_the_declaration_gives_the_default_dimension() -> None:
    assert Dimension.of(DECLARED["alpha"]).distribution() == FloatDistribution(0.0, 2.0)
    assert Dimension.of(DECLARED["rate"]).distribution() == FloatDistribution(1e-3, 0.3, log=True)
    assert Dimension.of(DECLARED["decay"]).distribution() == FloatDistribution(0.0, 1.0, step=0.1)
    assert Dimension.of(DECLARED["steps"]).distribution() == IntDistribution(5, 100, log=True)
    assert Dimension.of(DECLARED["even"]).distribution() == IntDistribution(2, 10, step=2)
    assert Dimension.of(DECLARED["merge_op"]).distribution() == CategoricalDistribution(("mul", "add", "none"))
    assert Dimension.of(DECLARED["use_ema"]).distribution() == CategoricalDistribution((False, True))
    with pytest.raises(ValueError, match="without a lower or an upper bound"):
        Dimension.of(DECLARED["open"])
    for half in ({"low": 0.0}, {"high": 1.0}):
        with pytest.raises(ValueError, match="without a lower or an upper bound"):
            Dimension.of(Parameter("half", "real", 0.5, "", **half))
    assert Dimension.of(DECLARED["rho"]).step is None  # a whole number needs no step of 1
    assert Dimension.of(Parameter("whole", "real", 1.0, "", low=0.0, high=3.0, step=1.0)).step == 1.0
    whole = Parameter("n", "integer", 2, "", low=1, high=9, step=1)
    assert Dimension.of(whole).step is None and Dimension.of(replace(whole, step=3)).high == 7
    assert reachable(0.0, 0.05, 0.1) == 0.0
    assert not Dimension.of(Parameter("from_0", "real", 1.0, "", low=0.0, high=3.0, log=True)).log
    with pytest.raises(ValueError, match="text"):
        Dimension.of(DECLARED["dataset"])


def test_grid_points_run_the_last_dimension_fastest() -> None:
    space = Space(
        "s",
        "m",
        {"alpha": Dimension(DECLARED["alpha"], 0, 1, grid=(1.0, 0.0)), "use_ema": Dimension(DECLARED["use_ema"])},
    )
    assert space.grid_points() == [
        {"alpha": 1.0, "use_ema": False},
        {"alpha": 1.0, "use_ema": True},
        {"alpha": 0.0, "use_ema": False},
        {"alpha": 0.0, "use_ema": True},
    ]


def test_one_at_a_time_goes_through_the_defaults() -> None:
    space = Space(
        "s",
        "m",
        {
            "alpha": Dimension(DECLARED["alpha"], 0, 1, grid=(0.0, 0.5, 1.0)),
            "rho": Dimension(DECLARED["rho"], 0, 9, grid=(5, 9)),
            "use_ema": Dimension(DECLARED["use_ema"]),
        },
        one_at_a_time=True,
    )
    start = {"alpha": 0.5, "rho": 0, "use_ema": True}
    assert space.grid_points() == [
        start,
        start | {"alpha": 0.0},
        start | {"alpha": 1.0},
        start | {"rho": 5},
        start | {"rho": 9},
        start | {"use_ema": False},
    ]
    assert space.cells() == 6 and all(space.contains(point) for point in space.grid_points())
    assert Space.from_json(json.loads(json.dumps(space.to_json()))) == space


def test_cells_counts_the_grid_without_making_it() -> None:
    for keys in (["alpha", "use_ema"], ["kind"], ["kind", "merge_op", "even"]):
        space = Space("s", "m", {key: Dimension.of(DECLARED[key]) for key in keys})
        assert space.cells(3) == len(space.grid_points(3))


def test_numbers_without_a_grid_are_spaced_evenly_on_their_scale() -> None:
    assert Dimension(DECLARED["alpha"], 0.0, 2.0).values() == (0.0, 0.5, 1.0, 1.5, 2.0)
    assert Dimension(DECLARED["alpha"], 0.0, 2.0).values(1) == (0.0,)
    assert Dimension(DECLARED["alpha"], 0.0, 0.3).values(4) == (0.0, 0.1, 0.2, 0.3)
    assert Dimension(DECLARED["rate"], 1e-3, 1e-1, log=True).values(3) == (1e-3, 1e-2, 1e-1)
    assert Dimension(DECLARED["rho"], 0, 100).values(3) == (0, 50, 100)
    assert Dimension(DECLARED["rho"], 3, 4).values(5) == (3, 4)
    assert Dimension(DECLARED["steps"], 1, 100, log=True).values(3) == (1, 10, 100)
    assert Dimension(DECLARED["decay"], 0.0, 0.9, step=0.3).values() == (0.0, 0.3, 0.6, 0.9)


def test_an_options_parameters_exist_only_under_that_option() -> None:
    space = Space("s", "m", {"kind": Dimension.of(DECLARED["kind"])})
    assert set(space.distributions()) == {"kind", "a.width", "a.lr", "b.lr"}
    assert space.distributions()["a.lr"] == FloatDistribution(0.001, 1.0, log=True)
    assert space.distributions()["b.lr"] == FloatDistribution(0.1, 0.9)
    expected = {"a": {"kind", "width", "lr"}, "b": {"kind", "lr"}, "c": {"kind"}}
    for option, keys in expected.items():
        study = optuna.create_study()
        study.enqueue_trial({"kind": option})
        trial = study.ask()
        values = space.suggest(trial)
        assert set(values) == keys and values["kind"] == option
        assert space.contains(values) and space.params(values) == trial.params and space.values(trial.params) == values
    assert not space.contains({"kind": "c", "lr": 0.5}), "c owns no lr"
    assert not space.contains({"kind": "a", "lr": 0.5}), "width is missing"
    assert [p["kind"] for p in space.grid_points(2)] == ["a"] * 4 + ["b"] * 2 + ["c"]
    assert Space.from_json(json.loads(json.dumps(space.to_json()))) == space


def test_the_declared_point_is_there_only_where_the_space_holds_all_of_it() -> None:
    alpha = Parameter("alpha", "real", 0.5, "", low=0.0, high=2.0)
    steps = Parameter("steps", "integer", 5, "", low=1, high=20)

    def point(*found: Dimension) -> Any:
        return Space("s", "m", {d.key: d for d in found}).declared_point()

    assert point(Dimension(alpha, 0.0, 1.0), Dimension(steps, 1, 20)) == {"alpha": 0.5, "steps": 5}
    assert point(Dimension(alpha, 0.0, 1.0, grid=(0.0, 1.0))) == {"alpha": 0.5}, "other samplers search the interval"
    assert point(Dimension(alpha, 0.75, 1.0), Dimension(steps, 1, 20)) is None
    assert point(Dimension(alpha, 0.0, 1.0, step=0.25)) == {"alpha": 0.5}
    assert point(Dimension(alpha, 0.0, 0.9, step=0.3)) is None, "0.5 stands between two steps"
    assert point(Dimension(steps, 1, 19, step=2)) == {"steps": 5} and point(Dimension(steps, 2, 20, step=2)) is None


def test_the_declared_point_goes_into_the_declared_option() -> None:
    inner = Parameter("mu", "real", 0.1, "", low=0.0, high=1.0)
    kind = Parameter("kind", "choice", "b", "", options=("a", "b"), children={"b": (inner,)})
    other = Parameter("kind", "choice", "a", "", options=("a", "b"), children={"b": (inner,)})
    child = {"b": (Dimension(inner, 0.0, 1.0),)}
    assert Space("s", "m", {"kind": Dimension(kind, options=("a", "b"), children=child)}).declared_point() == {
        "kind": "b",
        "mu": 0.1,
    }
    assert Space("s", "m", {"kind": Dimension(other, options=("a", "b"), children=child)}).declared_point() == {
        "kind": "a"
    }
    assert Space("s", "m", {"kind": Dimension(kind, options=("a",))}).declared_point() is None
    narrow = {"b": (Dimension(inner, 0.5, 1.0),)}
    assert Space("s", "m", {"kind": Dimension(kind, options=("a", "b"), children=narrow)}).declared_point() is None


@pytest.mark.parametrize(
    ("low", "high", "step", "top"),
    [
        (0, 10, 3, 9),
        (0, 1, 0.3, 0.9),
        (0.0, 10, 3, 9.0),
        (0.5, 2.0, 0.4, 1.7),
        (0, 9, 3, 9),
        (2, 9, 3, 8),
        (0.0, 0.9, 0.3, 0.9),
    ],
)
def test_reachable_is_the_largest_step_below_and_whole_where_low_and_step_are(
    low: float, high: float, step: float, top: float
) -> None:
    found = reachable(low, high, step)
    assert (found, type(found)) == (top, type(top))


def test_a_space_that_says_nothing_more_selects_on_validation_data() -> None:
    plain = Space("s", "m", {})
    assert plain.metric == ("val_global_accuracy",) and not plain.select_on_test and not plain.one_at_a_time
    assert plain.conditions() == [{}]
