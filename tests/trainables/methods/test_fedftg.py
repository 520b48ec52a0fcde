"""FedFTG's losses, each against NumPy, and where gradients flow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.trainables.building_blocks.test_losses import random, softmax
from trainables.methods.fedftg import Config, discrepancy_loss, generator_loss, global_loss

S, B, C = 3, 5, 4
EACH, STUDENT = random(S, B, C), random(B, C, seed=1)
Y = torch.tensor([0, 1, 2, 3, 1])
TAU = torch.rand(S, B, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
TAU = TAU / TAU.sum(dim=0)


def kl(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    return (p * (np.log(p) - np.log(q))).sum(axis=1)


def summed(rows: list[np.ndarray]) -> float:
    """Σ_i mean_b τ_(i,y) rows_(i,b)."""
    return float(sum((TAU[i].numpy() * rows[i]).mean() for i in range(S)))


def test_model_discrepancy() -> None:
    """L_md = Σ_i mean_b τ KL(softmax(f/T) ‖ softmax(f_i/T)) / C; kl_norm=batch leaves the division out."""
    expected = summed([kl(softmax(STUDENT.numpy(), 2.0), softmax(EACH[i].numpy(), 2.0)) for i in range(S)])
    config = Config(kd_temperature=2.0)
    assert float(discrepancy_loss(config, EACH, STUDENT, TAU)) == pytest.approx(expected / C, rel=1e-9)
    assert float(discrepancy_loss(replace(config, kl_norm="batch"), EACH, STUDENT, TAU)) == pytest.approx(
        expected, rel=1e-9
    )
    absolute = summed([np.abs(STUDENT.numpy() - EACH[i].numpy()).mean(axis=1) for i in range(S)])
    assert float(discrepancy_loss(replace(config, discrepancy="l1"), EACH, STUDENT, TAU)) == pytest.approx(
        absolute, rel=1e-9
    )


@pytest.mark.parametrize(("discrepancy", "clients_move"), [("kl", True), ("l1", False)])
def test_one_side_of_the_discrepancy_is_detached(discrepancy: str, clients_move: bool) -> None:
    each, student = EACH.clone().requires_grad_(), STUDENT.clone().requires_grad_()
    discrepancy_loss(Config(discrepancy=discrepancy), each, student, TAU).backward()
    assert (each.grad is not None) is clients_move
    assert (student.grad is not None) is not clients_move


def test_generator_loss() -> None:
    """L_gen = Σ_i mean_b τ CE(f_i, y) - β_md L_md + β_div L_div(s, z)."""
    images, noise = random(B, 1, 2, 2, seed=3), random(B, 3, seed=4)
    classes = summed([-np.log(softmax(EACH[i].numpy()))[np.arange(B), Y.numpy()] for i in range(S)])
    transfer = summed([kl(softmax(STUDENT.numpy(), 5.0), softmax(EACH[i].numpy(), 5.0)) for i in range(S)])
    pairs = [
        np.mean((images[j].numpy() - images[k].numpy()) ** 2) * np.mean((noise[j].numpy() - noise[k].numpy()) ** 2)
        for j in range(B)
        for k in range(B)
    ]
    config = Config(beta_md=0.7, beta_div=1.3, kd_temperature=5.0)
    expected = classes - 0.7 * transfer / C + 1.3 * np.exp(-np.mean(pairs))
    assert float(generator_loss(config, EACH, STUDENT, Y, TAU, images, noise)) == pytest.approx(expected, rel=1e-9)
    assert float(
        generator_loss(replace(config, beta_md=0.0, beta_div=0.0), EACH, STUDENT, Y, TAU, images, noise)
    ) == pytest.approx(classes, rel=1e-9)


def test_global_loss_moves_the_student_alone() -> None:
    """L_glo = Σ_i mean_b τ KL(softmax(f_i/T) ‖ softmax(f/T)) / C; kl_norm=batch leaves the division out."""
    each, student = EACH.clone().requires_grad_(), STUDENT.clone().requires_grad_()
    loss = global_loss(Config(kd_temperature=3.0), each, student, TAU)
    expected = summed([kl(softmax(EACH[i].numpy(), 3.0), softmax(STUDENT.numpy(), 3.0)) for i in range(S)])
    assert float(loss.detach()) == pytest.approx(expected / C, rel=1e-9)
    undivided = global_loss(Config(kd_temperature=3.0, kl_norm="batch"), EACH, STUDENT, TAU)
    assert float(undivided) == pytest.approx(expected, rel=1e-9)
    loss.backward()
    assert each.grad is None and student.grad is not None and float(student.grad.abs().sum()) > 0
    literal = summed([kl(softmax(STUDENT.numpy(), 3.0), softmax(EACH[i].numpy(), 3.0)) for i in range(S)])
    assert float(global_loss(Config(kd_temperature=3.0, kl_direction="literal"), EACH, STUDENT, TAU)) == pytest.approx(
        literal / C, rel=1e-9
    )
