"""Numbers of which only some may be tried (`values: [0.01, 0.03, 0.1]`): every sampler proposes these, a grid walks
them, and the model of the search has them in their order."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import optuna
import pytest

from analysis.estimate.coordinates import coordinates
from fedtune.decisions.optuna_samplers import make_sampler
from fedtune.decisions.sampling import spread, uniform
from search_spaces import presets
from search_spaces.errors import UserError
from search_spaces.space import Space
from trainables import registry

RATES, SIZES = (0.01, 0.03, 0.1), (16, 64)
TEXT = "method: fedavg\nsearch:\n  lr: {values: [0.1, 0.01, 0.03]}\n  batch_size: {values: [16, 64]}\n"


def read(folder: Path, text: str = TEXT) -> Space:
    (folder / "space.yaml").write_text(text)
    return presets.load("fedavg", str(folder / "space.yaml"), registry.declared("fedavg"))


def test_they_are_read_recorded_and_walked(tmp_path: Path) -> None:
    space = read(tmp_path)
    assert Space.from_json(json.loads(json.dumps(space.to_json()))) == space
    assert [tuple(point.values()) for point in space.grid_points()] == [(lr, size) for lr in RATES for size in SIZES]
    lr = space.search["lr"]
    assert lr.distribution() == optuna.distributions.CategoricalDistribution(RATES)
    assert [lr.contains(value) for value in (0.03, 0.02, 0.1, 0.2)] == [True, False, True, False]
    assert lr.describe() == "0.01, 0.03, 0.1" and space.search["batch_size"].describe() == "16, 64"


@pytest.mark.parametrize("sampler", ["random", "tpe", "nsga2", "gp"])
def test_every_sampler_proposes_them_as_they_stand(tmp_path: Path, sampler: str) -> None:
    space = read(tmp_path)
    study = optuna.create_study(sampler=make_sampler(sampler, 0, 0))
    for _ in range(14):
        trial = study.ask()
        values = space.suggest(trial)
        assert space.contains(values) and type(values["batch_size"]) is int
        study.tell(trial, float(values["lr"]))


def test_each_is_as_likely_as_any_other(tmp_path: Path) -> None:
    space, rng = read(tmp_path), Random(0)
    drawn = Counter(uniform(space, rng)["lr"] for _ in range(3000))
    assert set(drawn) == set(RATES) and max(drawn.values()) < 1150
    assert {spread(space, 0, number)["batch_size"] for number in range(12)} == set(SIZES)


def test_the_model_of_the_search_has_them_in_their_order(tmp_path: Path) -> None:
    space = read(tmp_path)
    kinds = space.distributions()
    points = coordinates([({"lr": lr, "batch_size": 64}, kinds) for lr in (0.1, 0.01, 0.03)])
    np.testing.assert_array_equal(points, [[1.0, 1.0], [1.0, 0.0], [1.0, 0.5]])  # batch_size, lr


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("{values: []}", "values of lr must be a list of at least one number"),
        ("{values: [0.1, 0.1]}", "values of lr must be distinct numbers, got 0.1 twice"),
        ("{values: [99]}", r"values of lr must be a number in \[1e-06, 10\], got 99"),
        ("{values: [0.1, 0.2], log: true}", "log of lr must be left out beside values, which are the only ones"),
    ],
)
def test_what_cannot_be_is_said(tmp_path: Path, entry: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        read(tmp_path, f"method: fedavg\nsearch:\n  lr: {entry}\n")
