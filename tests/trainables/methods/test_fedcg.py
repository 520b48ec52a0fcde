"""FedCG's ramps over many rounds, its losses at their ends, and the discriminator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.contracts.test_methods import simulate
from trainables.methods.fedcg import (
    Config,
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


def test_gan_losses_are_finite_where_the_discriminator_is_sure_and_wrong() -> None:
    extreme = torch.full((2, 1), 200.0)
    assert torch.isfinite(discriminator_loss(-extreme, extreme)) and torch.isfinite(generator_loss(-extreme))


def test_the_discriminator_is_the_classifier_with_one_output(toy: Path) -> None:
    simulation, _ = simulate("fedcg", toy, 1, model="lenet_code")
    q = discriminator(simulation.fed, "local")
    assert [tuple(p.shape) for p in q.parameters()] == [(128, 128), (128,), (1, 128), (1,)]
