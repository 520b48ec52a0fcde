"""SCAFFOLD and MOON: their equations in NumPy, what crosses the wire, what stays on a client."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.contracts.test_methods import CPU, same, simulate, values_for
from tests.trainables.building_blocks.test_losses import random, softmax
from trainables.methods import moon, scaffold
from trainables.params import unpack
from trainables.simulation.rounds import Simulation, choose_cohort


def test_scaffolds_gradient_is_corrected_and_its_loss_is_not() -> None:
    module = torch.nn.Linear(3, 4).double()
    correction = [random(4, 3, seed=1), random(4, seed=2)]
    x, y = random(5, 3), torch.tensor([0, 1, 2, 3, 0])
    p = softmax(module(x).detach().numpy())
    error = p - np.eye(4)[y.numpy()]
    loss = scaffold.corrected_cross_entropy(correction)(module, x, y)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(-np.log(p[np.arange(5), y.numpy()]).mean(), rel=1e-12)
    assert module.weight.grad is not None and module.bias.grad is not None
    np.testing.assert_allclose(module.weight.grad.numpy(), error.T @ x.numpy() / 5 + correction[0].numpy(), rtol=1e-10)
    np.testing.assert_allclose(module.bias.grad.numpy(), error.mean(axis=0) + correction[1].numpy(), rtol=1e-10)


def test_scaffolds_new_control() -> None:
    own, common, received, trained = ({"w": random(3, seed=k)} for k in range(4))
    expected = own["w"].numpy() - common["w"].numpy() + (received["w"].numpy() - trained["w"].numpy()) / (5 * 0.1)
    got = scaffold.new_control(own, common, received, trained, 5 * 0.1)["w"]
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-12)


def test_with_zero_controls_scaffolds_clients_are_fedavgs_bit_for_bit(toy: Path) -> None:
    """Which they all are in round 1."""
    sent = {}
    for name in ("scaffold", "fedavg"):
        s = Simulation(name, values_for(name, toy, momentum=0.5), 3, CPU)
        row, results = s.exchange()
        sent[name] = {i: unpack("model", r.upload) for i, r in results.items()}, row["train_loss"]
    assert same(sent["scaffold"], sent["fedavg"])


@pytest.mark.usefixtures("float64")
def test_scaffolds_control_is_the_mean_of_the_clients(toy: Path) -> None:
    """While all take part; where some do not, their share of c stays as it was."""
    s, _ = simulate("scaffold", toy, 3)
    mean = {
        n: sum(k.control[n].double() for k in s.progress.client_states.values()) / 4 for n in s.progress.state.control
    }
    for name, value in mean.items():
        torch.testing.assert_close(s.progress.state.control[name].double(), value, rtol=1e-9, atol=1e-12)
    some, _ = simulate("scaffold", toy, 4, active_clients=2)
    kept = some.progress.client_states
    for name, value in some.progress.state.control.items():
        total = sum(state.control[name].double() for state in kept.values())
        torch.testing.assert_close(4 * value.double(), total, rtol=1e-9, atol=1e-12)


@pytest.mark.usefixtures("float64")
def test_scaffolds_control_is_the_mean_gradient_of_the_steps(toy: Path) -> None:
    """One step of plain SGD in round 1: the control is the gradient of its batch at the model received."""
    s, _ = simulate("scaffold", toy, 0, local_steps=1)
    data, rng = s.data.clients[2], s.fed.rng.child("round", 1, "client", 2)
    start = s.progress.state.model
    result = s.method.client(s.config, s.fed, s.method.download(s.config, s.fed, s.progress.state, 2), None, data, rng)
    order = torch.randperm(len(data), generator=rng.torch("batches"))[:16]
    x, y = data.batch(order)
    module = s.fed.network(role="by hand").train()
    module.load_state_dict(start)
    F.cross_entropy(module(x), y).backward()
    for name, p in module.named_parameters():
        assert p.grad is not None
        torch.testing.assert_close(result.client_state.control[name], p.grad, rtol=1e-9, atol=1e-12)


def test_scaffold_sends_twice_what_fedavg_does_both_ways(toy: Path) -> None:
    (_, fedavg), (_, controlled), (_, alone) = (
        simulate("fedavg", toy, 1),
        simulate("scaffold", toy, 1),
        simulate("scaffold", toy, 1, controls=False),
    )
    for key in ("bytes_up", "bytes_down"):
        assert controlled[0][key] == 2 * fedavg[0][key] and alone[0][key] == fedavg[0][key]


@pytest.mark.usefixtures("float64")
def test_scaffold_weighs_clients_alike(toy: Path) -> None:
    s, _ = simulate("scaffold", toy, 0, server_lr=0.5)
    before = s.progress.state.model
    _, results = s.exchange()
    for name, value in s.progress.state.model.items():
        mean = np.mean([unpack("model", r.upload)[name].double().numpy() for r in results.values()], axis=0)
        expected = (before[name].double().numpy() + mean) / 2
        np.testing.assert_allclose(value.numpy(), expected, rtol=1e-9, atol=1e-12)


def test_moons_contrastive_loss_is_eq_3() -> None:
    z, near, far = (random(6, 5, seed=k).numpy() for k in (1, 2, 3))

    def similarity(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1) / 0.4

    e_g, e_p = np.exp(similarity(z, near)), np.exp(similarity(z, far))
    expected = -np.log(e_g / (e_g + e_p)).mean()
    got = moon.contrastive_loss(*(torch.from_numpy(a) for a in (z, near, far)), 0.4)
    assert float(got) == pytest.approx(expected, rel=1e-10)
    assert float(moon.contrastive_loss(*(torch.from_numpy(a) for a in (z, near, near)), 0.4)) == pytest.approx(
        math.log(2), rel=1e-12
    )


def test_a_clients_first_round_of_moon_is_fedavgs_and_costs_log_2(toy: Path) -> None:
    s, rows = simulate("moon", toy, 2, mu=2.0)
    plain, others = simulate("fedavg", toy, 2)
    assert rows[0]["train_loss"] == pytest.approx(others[0]["train_loss"] + 2 * math.log(2), rel=1e-5)
    assert rows[0]["global_loss"] == others[0]["global_loss"]
    assert rows[1]["global_loss"] != others[1]["global_loss"]
    assert not same(s.global_model(), plain.global_model())


def test_moon_keeps_the_extractor_it_trained_last_and_sends_what_fedavg_does(toy: Path) -> None:
    s, rows = simulate("moon", toy, 3, active_clients=2)
    kept = dict(s.progress.client_states)
    now = set(choose_cohort(s.settings, s.fed.rng, 4).clients)
    _, results = s.exchange()
    assert results.keys() == now and kept.keys() - now
    for i, state in s.progress.client_states.items():
        assert all(not name.startswith("head.") for name in state.previous)
        if i in now:
            model = results[i].model
            assert model is not None and same(state.previous, {name: model[name] for name in state.previous})
        else:
            assert same(state.previous, kept[i].previous)
    _, others = simulate("fedavg", toy, 3, active_clients=2)
    assert [r["bytes_up"] for r in rows] == [r["bytes_up"] for r in others]


def test_moon_leaves_its_frozen_extractors_as_they_are(toy: Path) -> None:
    """Also with running statistics, which follow nothing in evaluation."""
    s, _ = simulate("moon", toy, 1, batch_norm="running")
    payload = s.method.download(s.config, s.fed, s.progress.state, 0)
    state, before = s.progress.client_states[0], {k: v.clone() for k, v in payload.items()}
    previous = {k: v.clone() for k, v in state.previous.items()}
    s.method.client(s.config, s.fed, payload, state, s.data.clients[0], s.fed.rng.child("x"))
    assert same(payload, before) and same(state.previous, previous)
