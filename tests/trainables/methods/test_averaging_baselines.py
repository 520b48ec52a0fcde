"""FedProx, FedGKD, q-FFL, SCAFFOLD, MOON: their equations against NumPy and plain autograd."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.contracts.test_methods import same, simulate, values_for
from tests.trainables.building_blocks.test_losses import random, softmax
from trainables.local import draw_batches
from trainables.methods import fedgkd, fedprox, moon, qffl, scaffold
from trainables.params import put, unpack
from trainables.rng import Rng
from trainables.simulation.rounds import Simulation

CPU = torch.device("cpu")


@pytest.mark.parametrize(("share", "steps"), [(1.0, 5), (0.5, 2), (0.3, 2), (0.2, 1), (0.01, 1)])
def test_a_straggler_makes_its_share_of_the_steps_and_at_least_one(share: float, steps: int) -> None:
    config = fedprox.Config(local_steps=5, batch_size=4)
    assert draw_batches(config, 10, share, Rng(0)).shape == (steps, 4)


def test_qffl_measures_without_moving_running_statistics(toy: Path) -> None:
    """F_k of the received model in evaluation mode, in which every sample is judged by itself."""
    s = Simulation("qffl", values_for("qffl", toy, batch_norm="running", q=1.0), 3, CPU)
    module, data = s.fed.network(), s.data.clients[0]
    put(module, s.progress.state.model)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    found = qffl.mean_loss(module, data, Rng(0))
    assert same(dict(module.state_dict()), before)
    module.eval()
    with torch.no_grad():
        losses = [
            F.cross_entropy(module(x), y).item() for x, y in (data.batch(i[None]) for i in torch.arange(len(data)))
        ]
    assert float(found) == pytest.approx(np.mean(losses), rel=1e-5)


def test_fedgkd_keeps_past_models_only_where_they_teach(toy: Path) -> None:
    kept = [len(simulate("fedgkd", toy, 3, gamma=gamma, buffer=2)[0].progress.state.past) for gamma in (0.0, 0.1)]
    assert kept == [0, 2]


def test_fedprox_objective_is_eq_2() -> None:
    module = torch.nn.Linear(3, 4).double()
    anchor = [random(4, 3, seed=1), random(4, seed=2)]
    x, y = random(5, 3), torch.tensor([0, 1, 2, 3, 0])
    p = softmax(module(x).detach().numpy())
    distance = sum(((a.detach() - b).numpy() ** 2).sum() for a, b in zip(module.parameters(), anchor, strict=True))
    expected = -np.log(p[np.arange(5), y.numpy()]).mean() + 0.3 / 2 * distance
    assert float(fedprox.proximal_cross_entropy(0.3, anchor)(module, x, y).detach()) == pytest.approx(
        expected, rel=1e-12
    )


@pytest.mark.parametrize("teachers", [1, 3])
def test_fedgkd_objective_averages_logits_and_halves_gamma(teachers: int) -> None:
    student, teach = torch.nn.Linear(3, 4).double(), [torch.nn.Linear(3, 4).double() for _ in range(teachers)]
    x, y = random(5, 3), torch.tensor([0, 1, 2, 3, 0])
    config = fedgkd.Config(gamma=0.6, kd_temperature=2.0)
    p = softmax(np.mean([t(x).detach().numpy() for t in teach], axis=0), 2.0)
    logits = student(x).detach().numpy()
    kl = (p * (np.log(p) - np.log(softmax(logits, 2.0)))).sum(axis=1).mean()
    expected = -np.log(softmax(logits)[np.arange(5), y.numpy()]).mean() + 0.3 * kl
    loss = fedgkd.distilling_cross_entropy(config, teach)(student, x, y)
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-12)
    loss.backward()
    assert student.weight.grad is not None and all(p.grad is None for t in teach for p in t.parameters())


def test_fedgkds_teachers_evaluate_with_their_running_statistics(toy: Path) -> None:
    s, _ = simulate("fedgkd", toy, 1, buffer=1, batch_norm="running")
    payload = s.method.download(s.config, s.fed, s.progress.state, 0)
    before = {key: tensor.clone() for key, tensor in payload.items()}
    (teacher,) = fedgkd.frozen_teachers(s.fed, payload)
    module = s.fed.network(role="by hand").eval()
    put(module, unpack("teacher0", payload))
    x, _ = s.data.clients[0].batch(torch.arange(5))
    assert torch.equal(teacher(x), module(x)) and same(payload, before)


@pytest.mark.parametrize("least", [0.3, 0.0])
@pytest.mark.parametrize("q", [0.0, 1e-4, 0.7, 2.0])
def test_qffl_step_is_algorithm_2_as_printed(q: float, least: float) -> None:
    lr, losses = 0.1, [least, 1.9, 0.7]
    old, models = (
        {"a": random(4, 3), "b": random(3, seed=1)},
        [{"a": random(4, 3, seed=k), "b": random(3, seed=k + 9)} for k in (2, 3, 4)],
    )
    w = np.concatenate([t.numpy().ravel() for t in old.values()])
    delta, h = np.zeros_like(w), 0.0
    for loss, model in zip(losses, models, strict=True):
        dw = (w - np.concatenate([t.numpy().ravel() for t in model.values()])) / lr
        delta += (loss + 1e-10) ** q * dw
        h += q * (loss + 1e-10) ** (q - 1) * (dw**2).sum() + (loss + 1e-10) ** q / lr
    got = qffl.fair_step(q, lr, old, models, losses)
    np.testing.assert_allclose(
        np.concatenate([t.numpy().ravel() for t in got.values()]), w - delta / h, rtol=1e-9, atol=1e-12
    )


def test_qffl_stays_finite_for_a_large_q_and_leans_to_the_worst_client() -> None:
    old, models = {"a": torch.zeros(2)}, [{"a": torch.tensor([1e-3, 0.0])}, {"a": torch.tensor([0.0, 1e-3])}]
    got = qffl.fair_step(100.0, 1.0, old, models, [1e5, 10.0])["a"]
    assert bool(torch.isfinite(got).all()) and float(got[0]) > 1e6 * float(got[1])


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


def test_moon_leaves_its_frozen_extractors_as_they_are(toy: Path) -> None:
    """Also with running statistics, which follow nothing in evaluation."""
    s, _ = simulate("moon", toy, 1, batch_norm="running")
    payload = s.method.download(s.config, s.fed, s.progress.state, 0)
    state, before = s.progress.client_states[0], {k: v.clone() for k, v in payload.items()}
    previous = {k: v.clone() for k, v in state.previous.items()}
    s.method.client(s.config, s.fed, payload, state, s.data.clients[0], s.fed.rng.child("x"))
    assert same(payload, before) and same(state.previous, previous)
