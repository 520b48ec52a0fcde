"""What is said of a data set of one's own on a command line, which model and which clients follow from it, and which
methods cannot use it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedtune.options import AutoRequest, SearchRequest
from fedtune.planning import auto_budget
from fedtune.planning.auto_plan import plan_auto
from fedtune.planning.plan import Plan, plan
from search_spaces.errors import UserError


@pytest.fixture
def people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(300, 3)), columns=["a", "b", "c"])
    frame.assign(y=rng.choice(["x", "z"], 300), ward=rng.integers(0, 4, 300)).to_csv("people.csv", index=False)
    np.savez("vectors.npz", x=rng.normal(size=(300, 3)), y=rng.integers(0, 3, 300))
    return tmp_path


def planned(method: str = "fedavg", **asked: Any) -> Plan:
    return plan(SearchRequest(method, **{"rounds": 1, **asked}))


@pytest.mark.parametrize(
    "asked",
    [
        {"dataset": "people.csv", "label": "y", "client": "ward"},
        {"dataset": "people.csv", "set": ("label=y", "client=ward")},
        {"set": {"dataset": "people.csv?label=y", "client": "ward"}},
    ],
)
def test_the_clients_are_those_of_the_data(people: Path, asked: dict[str, Any]) -> None:
    values = planned(**asked).middle
    assert values["dataset"] == f"{people}/people.csv?label=y&client=ward"
    assert (values["partition"], values["clients"], values["model"]) == ("natural", 4, "auto")


def test_clients_may_be_drawn_all_the_same(people: Path) -> None:
    settings = ("partition=iid", "clients=6")
    values = planned(dataset="people.csv", label="y", client="ward", set=settings).middle
    assert (values["partition"], values["clients"]) == ("iid", 6)


@pytest.mark.parametrize(
    ("method", "asked", "said"),
    [
        ("fedavg", {"label": "y"}, "label is said of a data set of your own. Give --dataset FILE beside it."),
        ("fedavg", {"dataset": "digits", "client": "y"}, "client is said of a data set of your own, and digits is"),
        ("dfrd", {"dataset": "vectors.npz"}, "holds vectors, and dfrd, which generates images, needs images"),
        ("fedproto", {"dataset": "vectors.npz"}, "fedproto, whose models are made for images, needs images"),
        ("fedavg", {"dataset": "vectors.npz", "set": ("model=cnn",)}, "model must be auto, mlp or one of your own for"),
        ("fedavg", {"dataset": "vectors.npz", "keep_images": True}, "keep_images must be left out for vectors"),
        ("fedavg", {"dataset": "vectors.npz", "set": ("attack_images=2",)}, "attack_images must be 0 for vectors"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said_before_anything(people: Path, method: str, asked: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as told:
        planned(method, **asked)
    assert said in str(told.value) and len(told.value.problems) == 1
    assert not (people / "runs").exists()


def test_auto_takes_the_clients_and_leaves_out_what_needs_images(people: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    costs = {"seconds": 1.0, "seed-rounds": 1.0, "bytes": 1.0, "bytes_up": 1.0}
    monkeypatch.setattr(auto_budget, "measured", lambda *_, **rest: dict(costs))
    methods = ("fedavg", "dfrd")
    made = plan_auto(AutoRequest("people.csv", label="y", client="ward", budget="90rounds", methods=methods, slots=1))
    (search,) = made.searches
    values = search.experiment.values
    assert values["dataset"] == f"{people}/people.csv?label=y&client=ward"
    assert (values["partition"], values["clients"], values["model"]) == ("natural", 4, "auto")
    (left_out,) = made.record.excluded
    assert left_out.name == "dfrd" and "dfrd, which generates images, needs images" in left_out.why
