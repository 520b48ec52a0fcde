"""Shared losses against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from trainables.building_blocks.losses import added, diversity, kd_kl, pair_distances


def softmax(u: np.ndarray, t: float = 1.0) -> np.ndarray:
    e = np.exp(u / t - (u / t).max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def ce(logits: np.ndarray, y: np.ndarray) -> float:
    return float(-np.log(softmax(logits))[np.arange(len(y)), y].mean())


def kl(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    return (p * (np.log(p) - np.log(q))).sum(axis=1)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_kd_kl_has_the_teacher_as_target() -> None:
    student, teacher = random(5, 4), random(5, 4, seed=1)
    p, q = softmax(teacher.numpy(), 3.0), softmax(student.numpy(), 3.0)
    assert float(kd_kl(student, teacher, 3.0)) == pytest.approx((p * (np.log(p) - np.log(q))).sum() / 5, rel=1e-12)
    assert float(kd_kl(student, teacher, 3.0, "literal")) == pytest.approx(
        (q * (np.log(q) - np.log(p))).sum() / 5, rel=1e-12
    )


def test_kd_kl_is_zero_for_equal_logits_detached_from_the_teacher_and_finite_on_nothing() -> None:
    student, teacher = random(5, 4).requires_grad_(), random(5, 4, seed=1).requires_grad_()
    assert float(kd_kl(student, student).detach()) == pytest.approx(0.0, abs=1e-15)
    kd_kl(student, teacher).backward()
    assert teacher.grad is None and student.grad is not None and float(student.grad.abs().sum()) > 0
    empty = kd_kl(student[:0], teacher[:0])
    assert float(empty) == 0.0


@pytest.mark.parametrize("norm", ["mean_sq", "mean_abs", "l2"])
def test_distances_of_near_rows_are_kept(norm: str) -> None:
    """Two rows that differ by 1/8 in one of two coordinates."""
    near = torch.tensor([[0.5, 2.0], [0.625, 2.0]], dtype=torch.float64)
    between = {"mean_sq": 1 / 64 / 2, "mean_abs": 1 / 8 / 2, "l2": 1 / 8}[norm]
    np.testing.assert_array_equal(pair_distances(near, norm).numpy(), [[0.0, between], [between, 0.0]])


@pytest.mark.parametrize("norm", ["mean_sq", "mean_abs", "mean_abs_images", "l2"])
def test_diversity_is_eq_4_and_has_a_finite_gradient(norm: str) -> None:
    """DFRD Eq. 4: exp(-(1/B²) Σ_jk d(s_j, s_k) d(h_j, h_k)), the diagonal pairs in the mean."""
    s, h = random(3, 2, 2).requires_grad_(), random(3, 5, seed=1).requires_grad_()
    value = diversity(s, h, norm)
    total = 0.0
    for j in range(3):
        for k in range(3):
            a, b = (x.detach().numpy().reshape(3, -1) for x in (s, h))
            of_images, of_noise = ("mean_abs", "mean_sq") if norm == "mean_abs_images" else (norm, norm)
            d = [
                {"mean_sq": np.mean(v**2), "mean_abs": np.mean(np.abs(v)), "l2": np.sqrt(np.sum(v**2))}[which]
                for v, which in ((a[j] - a[k], of_images), (b[j] - b[k], of_noise))
            ]
            total += d[0] * d[1]
    assert float(value) == pytest.approx(np.exp(-total / 9), rel=1e-12)
    value.backward()
    assert torch.isfinite(s.grad).all() and float(s.grad.abs().sum()) > 0  # type: ignore[arg-type, union-attr]


def test_the_printed_norms_underflow_for_images_and_the_default_does_not() -> None:
    images, conditions = random(64, 3, 32, 32).float().tanh(), random(64, 64, seed=1).float()
    assert float(diversity(images, conditions, "l2")) == 0.0
    assert 0.0 < float(diversity(images, conditions)) < 1.0


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
