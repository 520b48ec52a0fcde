"""A known gradient beside that of a loss: the loss keeps its value, the sum is exact, also stacked."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from tests.trainables.building_blocks.test_losses import random
from trainables.building_blocks.added_gradient import added


def test_the_value_is_the_losss_and_the_gradient_the_sum() -> None:
    w, v = random(3, seed=1).requires_grad_(), random(2, 2, seed=2).requires_grad_()
    a, b = random(3, seed=3), random(2, 2, seed=4)
    plain = (w**2).sum() + v.prod()
    expected = torch.autograd.grad(plain, (w, v))
    loss = added((w**2).sum() + v.prod(), [w, v], [a, b])
    assert torch.equal(loss, plain)
    for got, own, extra in zip(torch.autograd.grad(loss, (w, v)), expected, (a, b), strict=True):
        assert torch.equal(got, own + extra)


def test_a_parameter_that_is_not_in_the_loss_has_the_gradient_that_is_given() -> None:
    w, a = random(3).requires_grad_(), random(3, seed=1)
    loss = added(torch.tensor(2.0, dtype=torch.float64), [w], [a])
    loss.backward()
    assert w.grad is not None and torch.equal(w.grad, a) and float(loss.detach()) == 2.0


def test_zeros_change_no_bit() -> None:
    w = random(5).requires_grad_()
    (plain,) = torch.autograd.grad((w.sin() * w).sum(), w)
    (got,) = torch.autograd.grad(added((w.sin() * w).sum(), [w], [torch.zeros(5, dtype=torch.float64)]), w)
    assert torch.equal(got, plain)


def test_stacked_losses_have_each_their_own() -> None:
    w, a = random(4, 3), random(4, 3, seed=1)

    def loss_of(w: Tensor, a: Tensor) -> Tensor:
        return added((w**2).sum(), [w], [a])

    gradients, losses = vmap(grad_and_value(loss_of))(w, a)
    assert torch.equal(gradients, 2 * w + a) and torch.equal(losses, (w**2).sum(dim=1))


def test_lists_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="1 parameters and 0 gradients"):
        added(torch.tensor(0.0), [torch.zeros(1)], [])
