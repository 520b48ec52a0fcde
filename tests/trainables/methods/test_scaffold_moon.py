"""SCAFFOLD and MOON: their equations in NumPy, and what stays as it is."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.contracts.test_methods import same, simulate
from tests.trainables.building_blocks.test_losses import random, softmax
from trainables.methods import moon, scaffold


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
