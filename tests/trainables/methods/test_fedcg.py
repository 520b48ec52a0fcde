"""FedCG's equations, each against NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.contracts.test_methods import simulate
from tests.trainables.building_blocks.test_losses import random
from tests.trainables.methods.test_fedmdcg import ce
from trainables.methods.fedcg import (
    Config,
    _LocalObjective,
    discriminator,
    discriminator_loss,
    gamma_of,
    generator_loss,
)


def test_the_two_ramps() -> None:
    sigmoid = Config(gamma=2.0)
    assert gamma_of(sigmoid, 1, 100) == 0.0
    assert gamma_of(sigmoid, 6, 100) == pytest.approx(2 * (2 / (1 + np.exp(-1)) - 1), rel=1e-12)
    assert (
        gamma_of(sigmoid, 51, 100)
        == gamma_of(sigmoid, 99, 100)
        == pytest.approx(2 * (2 / (1 + np.exp(-10)) - 1), rel=1e-12)
    )
    assert gamma_of(Config(gamma=2.0, ramp="polynomial"), 51, 100) == pytest.approx(2 * 0.5**3)


def test_gan_losses() -> None:
    real, made = random(6, 1), random(6, 1, seed=1)
    q_real, q_made = (1 / (1 + np.exp(-v.numpy())) for v in (real, made))
    assert float(discriminator_loss(real, made)) == pytest.approx(
        -(np.log(q_real) + np.log(1 - q_made)).mean(), rel=1e-9
    )
    assert float(generator_loss(made)) == pytest.approx(-np.log(q_made).mean(), rel=1e-9)
    extreme = torch.full((2, 1), 200.0)
    assert torch.isfinite(discriminator_loss(-extreme, extreme)) and torch.isfinite(generator_loss(-extreme))


def test_the_discriminator_is_the_classifier_with_one_output(toy: Path) -> None:
    simulation, _ = simulate("fedcg", toy, 1, model="lenet_code")
    q = discriminator(simulation.fed, "local")
    assert [tuple(p.shape) for p in q.parameters()] == [(128, 128), (128,), (1, 128), (1,)]


@pytest.mark.usefixtures("float64")
def test_the_local_loss(toy: Path) -> None:
    """CE + γ_r mean (F(x) - G(z, y))² with G detached; nothing but CE in the first round."""
    simulation, _ = simulate("fedcg", toy, 1, gamma=3.0, ramp="polynomial", ramp_power=1.0)
    s = simulation
    payload = s.method.download(s.config, s.fed, s.progress.state, 0)
    objective = _LocalObjective(s.config, s.fed, payload, s.fed.rng.child("stage 1"))
    module = s.fed.network()
    x, y = s.data.clients[0].batch(torch.arange(5))
    loss = objective(module, x, y)
    with torch.no_grad():
        g = (
            objective.generator(torch.randn(5, 8, generator=s.fed.rng.child("stage 1").torch("noise")), y)
            .double()
            .numpy()
        )
        f, logits = module.features(x).double().numpy(), module(x).double().numpy()
    assert float(loss) == pytest.approx(ce(logits, y.numpy()) + 3 * (1 / 4) * ((f - g) ** 2).mean(), rel=1e-9)
    loss.backward()
    assert all(p.grad is None for p in objective.generator.parameters())
    assert not objective.data_loss.requires_grad  # a sum over a round must not keep every step's graph
    first = s.method.download(s.config, s.fed, s.method.init(s.config, s.fed, s.fed.rng), 0)
    plain = _LocalObjective(s.config, s.fed, first, s.fed.rng)(module, x, y)
    assert float(plain) == float(F.cross_entropy(module(x), y))
