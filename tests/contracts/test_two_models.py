"""Clients with a second model: both are measured, each in its own network; a method says which names it has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from search_spaces.metrics import LOCAL_MODELS, METRICS
from tests.contracts.test_methods import CPU, METHODS, simulate, values_for
from trainables import registry
from trainables.local import client_of
from trainables.simulation import evaluation
from trainables.simulation.rounds import Simulation
from trainables.wire import ClientResult


@pytest.mark.numeric
@pytest.mark.parametrize("fraction", [0.0, 0.25])
def test_what_lies_beside_the_main_model_is_measured_in_its_own_network(fraction: float, toy: Path) -> None:
    """Local training whose clients hand back, beside their own model, that of an untrained lenet5."""
    s = Simulation("local", values_for("local", toy, client_test_fraction=fraction), 3, CPU)
    plain = Simulation("local", values_for("local", toy, client_test_fraction=fraction), 3, CPU)
    second = s.fed.built("lenet5")
    beside = {name: tensor.clone() for name, tensor in second.state_dict().items()}
    train = s.method.client

    def client(*work: Any) -> ClientResult:
        return replace(train(*work), others={"shared": beside})

    s.method = replace(s.method, client=client, other_networks={"shared": lambda config, fed, number: second})
    row, expected = s.run_round(), plain.run_round()
    names = {f"{prefix}shared_local_accuracy" for prefix in ("val_", "")}
    names |= {f"{prefix}shared_p_acc" for prefix in ("val_", "")} if fraction else set()
    assert row.keys() - expected.keys() == names <= METRICS.keys()
    assert all(row[key] == value for key, value in expected.items() if not key.startswith("seconds"))
    second.load_state_dict(beside)
    metrics, _ = evaluation.local_metrics(s.fed, s.data, {i: evaluation.measured(second, s.data, i) for i in range(4)})
    assert {name: row[name.replace("local", "shared_local")] for name in metrics if "local" in name} == {
        name: value for name, value in metrics.items() if "local" in name
    }


@pytest.mark.parametrize("name", METHODS)
def test_a_method_hands_back_the_models_that_it_declares(name: str, toy: Path) -> None:
    s, _ = simulate(name, toy, 0)
    assert s.method.other_networks.keys() <= LOCAL_MODELS.keys()
    _, results = s.exchange()
    for number, result in results.items():
        assert result.others.keys() == s.method.other_networks.keys()
        for other, params in result.others.items():
            own = s.method.other_networks[other](s.config, s.fed, number).state_dict()
            assert {key: t.shape for key, t in own.items()} == {key: t.shape for key, t in params.items()}


@pytest.mark.parametrize("name", METHODS)
def test_parts_of_the_traffic_are_parts_of_what_was_sent(name: str, toy: Path) -> None:
    """Whatever is counted apart, other clients' models included, is counted in the whole as well."""
    _, rows = simulate(name, toy, 2)
    for part in registry.method(name).traffic:
        for row in rows:
            assert 0 <= row[f"bytes_down_{part}"] <= row["bytes_down"]
            assert 0 <= row[f"bytes_up_{part}"] <= row["bytes_up"]


def test_samples_that_a_job_keeps_back_are_not_trained_on(toy: Path) -> None:
    """A job that names its data is trained on these, by the loop and stacked: as if the client had no others."""
    for executor in ("loop", "vmap"):
        s = Simulation("fedavg", values_for("fedavg", toy, executor=executor), 3, CPU)
        part = Simulation("fedavg", values_for("fedavg", toy, executor=executor), 3, CPU)
        job = s.method.job
        assert job is not None

        def half(data: Any) -> Any:
            return replace(data, indices=data.indices[::2], y=data.y[::2])

        def fewer(*work: Any, job: Any = job) -> Any:
            return replace(job(*work), data=half(work[4]))

        s.method = replace(s.method, job=fewer, client=client_of(fewer))
        part.data = replace(part.data, clients=tuple(half(c) for c in part.data.clients))
        (_, ours), (_, theirs) = s.exchange(), part.exchange()
        assert all(torch.equal(ours[i].upload[key], theirs[i].upload[key]) for i in ours for key in ours[i].upload), (
            executor
        )
