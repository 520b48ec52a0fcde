"""What is drawn for a trial: its generator, and configurations parameter by parameter."""

from __future__ import annotations

import hashlib
import math
import random

import pytest
from scipy.stats import chisquare, kstest, qmc

from fedtune.decisions.sampling import drawn, generator, spread, uniform
from search_spaces.dimension import Dimension
from search_spaces.parameter import Parameter
from search_spaces.space import Space


def test_a_search_that_goes_on_with_another_version_draws_the_same() -> None:
    digest = hashlib.blake2b(b"3/14/audit", digest_size=8).digest()
    expected = random.Random(sum(byte << 8 * (7 - place) for place, byte in enumerate(digest)))
    assert [generator(3, 14, "audit").random() for _ in range(2)] == [expected.random()] * 2


@pytest.mark.parametrize(
    ("kind", "step", "expected"),
    [
        ("real", None, (1.0, 4.0)),
        ("real", 0.5, (0.75, 4.25)),
        ("integer", None, (0.5, 4.5)),
        ("integer", 3, (-0.5, 5.5)),
    ],
)
def test_the_ends_have_as_much_room_as_what_lies_between(
    kind: str, step: float | None, expected: tuple[float, float]
) -> None:
    parameter = Parameter("x", kind, 1, "", low=0, high=9)
    assert Dimension(parameter, 1, 4, step=step).drawn_from == expected


def test_a_parameter_is_drawn_before_the_next_one_and_those_of_its_option_at_last() -> None:
    def real(key: str) -> Dimension:
        return Dimension(Parameter(key, "real", 0.5, "", low=0.0, high=1.0), 0.0, 1.0)

    method = Parameter("method", "choice", "a", "", options=("a", "b"))
    first = Dimension(method, options=("a", "b"), children={"a": (real("of_a"),), "b": (real("x"), real("y"))})
    where = Space("toy", "fedavg", {"method": first, "z": real("z")})
    asked: list[str] = []

    def number(dimension: Dimension) -> float:
        asked.append(dimension.key)
        return 0.5

    assert drawn(where, lambda dimension: "b", number) == {"method": "b", "z": 0.5, "x": 0.5, "y": 0.5}
    assert asked == ["z", "x", "y"]


def test_draws_are_uniform_on_the_scale_and_under_their_option() -> None:
    one = Parameter("lr", "real", 0.1, "", low=1e-4, high=1.0, log=True)
    steps = Parameter("steps", "integer", 1, "", low=1, high=4)
    method = Parameter("method", "choice", "a", "", options=("a", "b"))
    where = Space(
        "toy",
        "fedavg",
        {
            "method": Dimension(
                method, options=("a", "b"), children={"b": (Dimension(steps, 1, 4), Dimension(one, 1e-4, 1.0, True))}
            )
        },
    )
    rng = random.Random(0)
    draws = [uniform(where, rng) for _ in range(4000)]
    b = [one for one in draws if one["method"] == "b"]
    assert all(set(one) == ({"method", "steps", "lr"} if one["method"] == "b" else {"method"}) for one in draws)
    assert chisquare([len(b), 4000 - len(b)]).pvalue > 1e-3
    assert chisquare([sum(one["steps"] == k for one in b) for k in (1, 2, 3, 4)]).pvalue > 1e-3
    assert kstest([math.log10(float(one["lr"])) / 4 + 1 for one in b], "uniform").pvalue > 1e-3


def box(d: int) -> Space:
    keys = [f"x{i}" for i in range(d)]
    return Space("box", "toy", {k: Dimension(Parameter(k, "real", 0.5, "", low=0.0, high=1.0), 0.0, 1.0) for k in keys})


@pytest.mark.parametrize("number", [0, 1, 7, 300])
def test_a_point_of_the_sequence_is_drawn_without_those_before_it(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As SciPy draws it after all of them, to the last bit: 10,000 points took some 3 ms of every proposal."""
    whole = qmc.Halton(3, scramble=True, seed=generator(5, 0, "spread").getrandbits(63)).random(number + 1)
    drawn, random_ = [], qmc.Halton.random
    monkeypatch.setattr(qmc.Halton, "random", lambda self, n=1, **given: drawn.append(n) or random_(self, n, **given))
    assert [*spread(box(3), 5, number).values()] == whole[number].tolist()
    assert drawn == [1]


@pytest.mark.parametrize("d", [1, 2, 4])
def test_points_that_are_spread_fill_every_parameter_evenly(d: int) -> None:
    """Every strip of an eighth holds its share of 64 points, less or more by two; at random some hold 3, others 14."""
    points = [spread(box(d), 5, number) for number in range(64)]
    for key in points[0]:
        held = [sum(place / 8 <= float(point[key]) < (place + 1) / 8 for point in points) for place in range(8)]
        assert all(abs(count - 8) <= 2 for count in held), (key, held)


def test_the_seed_draws_the_sequence_and_options_take_turns() -> None:
    assert spread(box(2), 0, 3) != spread(box(2), 1, 3) and spread(box(2), 1, 3) == spread(box(2), 1, 3)
    choice = Dimension(Parameter("c", "choice", "a", "", options=("a", "b", "c")), options=("a", "b", "c"))
    drawn = [spread(Space("box", "toy", {"c": choice}), 1, number)["c"] for number in range(24)]
    assert all(7 <= drawn.count(option) <= 9 for option in "abc"), drawn
