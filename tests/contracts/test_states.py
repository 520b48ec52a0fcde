"""States count rounds, and what the methods named here declare is what their files have.

A new method needs no entry among these: their declarations are written down a second time, so that a slip in one of
their files is noticed.
"""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.contracts.test_methods import CPU, METHODS, same, simulate, values_for
from trainables import registry
from trainables.method import Method
from trainables.simulation.rounds import Simulation

#: Methods of which the average of the clients' local models is measured too: FedAvg, where it is the global model, and
#: those that share a part of a model or nothing.
VIRTUAL = {"fedavg", "fedcg", "fedgen", "fedmdcg", "fedper", "lgfedavg", "local"}


#: Methods with a generator that can be looked at.
PAINTED = {"dense", "dfrd", "dhf", "fedcg", "fedftg", "fedgen", "fedkf", "fedmdcg"}

#: Which methods a method is a case of, with some of its values; with others it may be a case of itself.
ON_A_BASE = {"fedavg", "heterofl", "feddropout", "fedrolex"}
LIMITS = {
    "dense": ON_A_BASE,
    "dfrd": ON_A_BASE | {"dfrd"},
    "dhf": {"local"},
    "ditto": {"ditto", "local"},
    "fedadam": set[str](),  # FedAvg up to rounding only: its step is added to w, where FedAvg's mean replaces w
    "fedamp": {"local"},
    "fedavg": {"fedavg"},
    "fedavgm": {"fedavg"},
    "fedbabu": {"fedavg"},
    "fedcg": {"fedcg", "lgfedavg"},
    "feddistill": {"local"},
    "feddropout": {"fedavg"},
    "fedfomo": {"local"},
    "fedftg": ON_A_BASE,
    "fedgen": {"fedavg", "lgfedavg"},
    "fedgh": set[str](),  # without server steps clients begin each round with the first header, as nobody else does
    "fedgkd": {"fedavg", "fedgkd"},
    "fedkd": {"local"},
    "fedkf": {"fedavg", "fedkf"},
    "fedmdcg": {"fedmdcg", "lgfedavg"},
    "fednova": {"fedavg"},
    "fedper": {"local"},
    "fedphp": {"fedavg"},
    "fedproto": {"local"},
    "fedprox": {"fedavg"},
    "fedrod": set[str](),  # γ = 0 makes its generic model FedAvg's, but local accuracy stays that of both heads
    "fedrolex": {"fedavg"},
    "fedtgp": {"local"},
    "fedyogi": {"fedadam"},
    "fml": {"local"},
    "heterofl": {"fedavg"},
    "lgfedavg": {"local"},
    "local": set[str](),
    "moon": {"fedavg"},
    "perfedavg": {"fedavg"},
    "qffl": {"fedavg"},
    "scaffold": {"fedavg"},
}

#: Methods that differ from FedAvg on the server alone.
WITH_FEDAVGS_CLIENTS = ("fedadam", "fedavgm", "fedyogi")
#: Methods that a building block makes of the little in which they differ.
OF_A_FACTORY = ("heterofl", "feddropout", "fedrolex", "fedper", "lgfedavg")


@pytest.mark.parametrize("name", METHODS)
def test_a_state_counts_its_rounds(name: str, toy: Path) -> None:
    """0 before the first round, k after k rounds; methods that do nothing by the round's number keep none."""
    s, _ = simulate(name, toy, 0)
    keeps = "round" in {field.name for field in dataclasses.fields(s.method.State)}
    counted = [getattr(s.progress.state, "round", None)]
    for _ in range(2):
        s.run_round()
        counted.append(getattr(s.progress.state, "round", None))
    assert counted == ([0, 1, 2] if keeps else [None] * 3)


@pytest.mark.parametrize("name", METHODS)
def test_the_first_state_is_drawn_from_the_seed_alone(name: str, toy: Path) -> None:
    """Not from PyTorch's own random numbers, by which a new module's weights are drawn."""
    made = []
    for seed, apart in ((3, 1), (3, 2), (4, 1)):
        torch.manual_seed(apart)
        made.append(Simulation(name, values_for(name, toy), seed, CPU).save())
    empty = name in ("fedamp", "feddistill", "fedfomo", "fedproto", "local")  # nothing is drawn before a client trains
    assert same(made[0], made[1]) and same(made[0], made[2]) is empty


def test_some_methods_keep_the_number_of_rounds_and_some_do_not() -> None:
    """The fields of a state are read above: here is that they were found."""
    keeps = {n for n in METHODS if "round" in {field.name for field in dataclasses.fields(registry.method(n).State)}}
    assert {"dhf", "fedkd", "fedproto", "local"} <= keeps
    assert keeps.isdisjoint({"fedavg", "fedgkd", "fedprox", "qffl"})


@pytest.mark.parametrize("name", LIMITS)
def test_a_method_declares_the_functions_and_classes_of_its_file(name: str, toy: Path) -> None:
    s, _ = simulate(name, toy, 1)  # a round: mutation testing asks about a file what runs some of it
    method, file = s.method, importlib.import_module(f"trainables.methods.{name}")
    wrapped = {"server", "global_model", "readouts"} if "model_cache" in registry.declared(name) else set()
    fields = {field.name for field in dataclasses.fields(Method)} - wrapped
    named = {field: getattr(file, field) for field in fields if hasattr(file, field)}
    assert "Config" in named or name in OF_A_FACTORY
    assert bool({"job", "client"} & named.keys()) is (name not in (*WITH_FEDAVGS_CLIENTS, *OF_A_FACTORY))
    assert {field: getattr(method, field) for field in named} == named
    assert method.measures_virtual(s.config) is (name in VIRTUAL)
    assert {limit.equals for limit in method.limits} == LIMITS[name]
    assert (method.painters is not None) is (name in PAINTED)
    plain = registry.method("fedavg")
    assert (method.job is plain.job) is (name in ("fedavg", *WITH_FEDAVGS_CLIENTS))


@pytest.mark.parametrize("name", ["feddistill", "fedgen", "fedgh", "fedkd", "fedproto", "fedtgp", "fml", "lgfedavg"])
def test_a_method_of_mixed_clients_declares_their_models_and_the_one_they_share(name: str, toy: Path) -> None:
    shares = "shared_model" in registry.declared(name)
    s, _ = simulate(name, toy, 0, model="cnn2", deep_model="cnn3", shared_model="cnn", nu=0.5, share="head")
    models = s.method.architectures(s.config, s.settings)
    assert set(models) == {"cnn2", "cnn3"} | ({"cnn"} if shares else set())
    assert shares == (name in ("fedkd", "fml"))
    # Those that share the last layer of every client's model need heads of one shape.
    small = dataclasses.replace(s.settings, model="cnn_small")
    assert not s.method.check(s.config, s.settings)
    assert bool(s.method.check(s.config, small)) is (name in ("fedgen", "lgfedavg"))
    if shares:
        beside: Any = s.method.other_networks["shared"](s.config, s.fed, 1)
        whole: Any = s.method.global_network(s.config, s.fed)
        assert beside.name == whole.name == "cnn"


@pytest.mark.parametrize(
    ("name", "values", "up", "down"),
    [
        ("dense", {"beta_bn": 0.0}, "model", "model"),
        ("fedkf", {"gamma": 0.0}, "model", "model"),
        ("fedproto", {"weighting": "owners"}, "prototype", "prototype"),
        ("qffl", {"q": 0.0}, "model", "model"),
        ("scaffold", {"controls": False}, "model", "model"),
    ],
)
def test_what_has_no_weight_is_not_sent(name: str, values: dict[str, Any], up: str, down: str, toy: Path) -> None:
    s, _ = simulate(name, toy, 1, **values)
    received = s.method.download(s.config, s.fed, s.progress.state, 0)
    _, results = s.exchange()
    assert {key.partition("/")[0] for key in results[0].upload} == {up}
    assert {key.partition("/")[0] for key in received} == {down}
