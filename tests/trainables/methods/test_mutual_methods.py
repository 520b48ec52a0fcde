"""FML and FedKD: their losses at the ends, and the factors that FedKD sends."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.trainables.building_blocks.test_losses import ce, kl, random, softmax
from trainables.building_blocks import mutual_pair
from trainables.methods import fedkd, fml
from trainables.methods.fedkd import compressed, expanded
from trainables.params import count_bytes

B, C, P = 5, 4, 6
U, V, H, WH = random(B, C), random(B, C, seed=1), random(B, P, seed=2), random(B, P, seed=3)
Y = torch.tensor([0, 3, 1, 2, 2])


def test_distillation_stays_finite_where_nothing_is_left_to_learn() -> None:
    """Both models are sure and right, so that the cross-entropies are 0 and the divisor is 1e-8."""
    sure = 1e4 * torch.eye(C, dtype=torch.float64)[Y]
    apart = float(((H.numpy() - WH.numpy()) ** 2).mean())
    for loss in fedkd.mentoring_losses(0.7, H, WH, sure, sure, Y):
        assert loss.item() == pytest.approx(0.7 * apart / 1e-8, rel=1e-9)


def test_a_term_of_weight_0_is_not_computed() -> None:
    nothing = torch.full((B, C), torch.nan, dtype=torch.float64)
    assert fml.mutual_loss(1.0, U, nothing, Y).item() == pytest.approx(ce(U.numpy(), Y.numpy()), rel=1e-9)
    no_classes = torch.full((B,), 99)  # which a cross-entropy refuses
    expected = kl(softmax(V.numpy()), softmax(U.numpy())).mean()
    assert fml.mutual_loss(0.0, U, V, no_classes).item() == pytest.approx(expected, rel=1e-9)


def test_the_pair_has_the_value_of_one_loss_and_the_gradients_of_both() -> None:
    a, b = torch.tensor(2.0, requires_grad=True), torch.tensor(5.0, requires_grad=True)
    joint = mutual_pair.both(a**2, b**3, 0.25)
    assert joint.item() == 4.0
    joint.backward()
    assert (a.grad, b.grad) == (torch.tensor(4.0), torch.tensor(0.25 * 3 * 25.0))


@pytest.mark.parametrize("energy", [0.3, 0.9, 0.99])
def test_the_fewest_singular_values_that_keep_the_energy_are_sent(energy: float) -> None:
    """A matrix of known singular values 8, 4, 2, 1, …, a convolution, and what cannot be made smaller."""
    q, r = np.linalg.qr(random(24, 24, seed=4).numpy())[0], np.linalg.qr(random(30, 30, seed=5).numpy())[0]
    values = 8.0 * 0.5 ** np.arange(24)
    matrix = torch.from_numpy(q @ np.diag(values) @ r[:24])
    kernel = torch.outer(random(16, 1, seed=6)[:, 0], random(45, 1, seed=7)[:, 0]).view(16, 5, 3, 3)
    full, bias = torch.eye(20, dtype=torch.float64), random(9, 1)[:, 0]
    params = {"m": matrix, "k": kernel, "f": full, "b": bias}
    payload = fedkd.compressed(params, energy)
    kept = int(np.argmax(np.cumsum(values**2) >= energy * (values**2).sum())) + 1
    assert payload["u/m"].shape == (24, kept) and payload["v/m"].shape == (kept, 30)
    np.testing.assert_allclose(payload["s/m"].numpy(), values[:kept], rtol=1e-9)
    assert payload["s/k"].shape == (1,) and "model/b" in payload
    assert ("model/f" in payload) is (energy > 0.5)  # 20 equal values: up to 9 of them are fewer numbers than 400
    back = fedkd.expanded(payload, params)
    np.testing.assert_allclose(back["m"].numpy(), q[:, :kept] @ np.diag(values[:kept]) @ r[:kept], atol=1e-12)
    np.testing.assert_allclose(back["k"].numpy(), kernel.numpy(), atol=1e-12)
    assert torch.equal(back["b"], bias)
    lost = float((back["m"] - matrix).square().sum() / matrix.square().sum())
    assert lost <= 1 - energy
    assert count_bytes(payload) < count_bytes(params)


def test_factors_have_one_sign_and_nothing_is_a_factor_of_nothing() -> None:
    matrix = random(12, 3, seed=1) @ random(3, 14, seed=2)
    one, other = fedkd.compressed({"w": matrix}, 0.999), fedkd.compressed({"w": -matrix}, 0.999)
    np.testing.assert_allclose(one["u/w"].numpy(), other["u/w"].numpy(), atol=1e-12)
    np.testing.assert_allclose(one["v/w"].numpy(), -other["v/w"].numpy(), atol=1e-12)
    nothing = fedkd.compressed({"w": torch.zeros(12, 14)}, 0.9)
    assert torch.equal(fedkd.expanded(nothing, {"w": torch.zeros(12, 14)})["w"], torch.zeros(12, 14))
    assert fedkd.compressed({"b": torch.ones(3)}, 0.9).keys() == {"model/b"}


@pytest.mark.parametrize("shape", [(2, 3), (3, 2), (2, 4), (4, 2)])
def test_a_matrix_is_sent_in_factors_where_these_are_fewer_numbers(shape: tuple[int, int]) -> None:
    """Of one singular value: 2 + 3 + 1 numbers are no fewer than 6, and 2 + 4 + 1 are fewer than 8."""
    matrix = torch.outer(random(shape[0], seed=1), random(shape[1], seed=2))
    assert ("model/w" in fedkd.compressed({"w": matrix}, 0.9)) is (sorted(shape) == [2, 3])


@pytest.mark.parametrize(("energy", "kept"), [(0.25, 1), (0.26, 2), (0.5, 2), (0.75, 3), (0.76, 4), (1.0, 4)])
def test_of_four_equal_singular_values_as_many_as_quarters_are_kept(energy: float, kept: int) -> None:
    assert int(fedkd._rank(torch.ones(4), energy)) == kept


def test_energies_are_summed_in_double_precision() -> None:
    """Of squares 2²⁴, 1, 1, 1 a half more than the first is asked for: two. 2²⁴ + 1 and 2²⁴ + 3 are no float32."""
    matrix = torch.zeros(40, 50, dtype=torch.float32)
    matrix[range(4), range(4)] = torch.tensor([2.0**12, 1.0, 1.0, 1.0])
    assert fedkd.compressed({"w": matrix}, (2**24 + 0.5) / (2**24 + 3))["s/w"].shape == (2,)


@pytest.mark.parametrize("shape", [(96, 160), (160, 96), (64, 8, 5, 5)])
def test_factors_are_as_exact_as_those_of_a_decomposition_in_the_same_precision(shape: tuple[int, ...]) -> None:
    """Against the truncated product and the singular values in float64; values fall to a ten-thousandth."""
    m, n = shape[0], math.prod(shape[1:])
    matrix = (random(m, n, seed=8) * 10.0 ** -torch.linspace(0, 4, n)).float()
    tensor = matrix.view(shape)
    found = fedkd.compressed({"w": tensor}, 0.98)
    k = len(found["s/w"])
    assert {t.dtype for t in found.values()} == {torch.float32} and 1 < k < min(matrix.shape)
    u, s, v = np.linalg.svd(matrix.double().numpy(), full_matrices=False)
    product = (u[:, :k] * s[:k]) @ v[:k]

    def error(u: torch.Tensor, s: torch.Tensor, v: torch.Tensor) -> float:
        return float(np.abs((u.double() * s.double()) @ v.double() - product).max())

    plain = torch.linalg.svd(matrix, full_matrices=False)
    assert error(found["u/w"], found["s/w"], found["v/w"]) <= error(plain[0][:, :k], plain[1][:k], plain[2][:k])
    assert np.abs(found["s/w"].double().numpy() - s[:k]).max() <= np.spacing(np.float32(s[0]))


def matrix(rows: int, columns: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("rows", "columns"), [(12, 7), (7, 12), (9, 9)])
def test_the_smaller_of_the_two_products_is_decomposed(
    rows: int, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, ...]] = []
    decompose = torch.linalg.eigh

    def spied(gram: Tensor) -> tuple[Tensor, Tensor]:
        seen.append(tuple(gram.shape))
        found: tuple[Tensor, Tensor] = decompose(gram)
        return found

    monkeypatch.setattr(torch.linalg, "eigh", spied)
    squares, _ = fedkd._spectrum(matrix(rows, columns))
    least = min(rows, columns)
    assert seen == [(least, least)]
    assert squares.shape == (least,)


def test_a_square_that_rounding_makes_negative_is_no_singular_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest eigenvalues of a matrix of rank one are zeros up to rounding, on either side."""
    delta = torch.outer(torch.arange(1.0, 9.0), torch.arange(2.0, 8.0))
    decompose = torch.linalg.eigh

    def rounded(gram: Tensor) -> tuple[Tensor, Tensor]:
        squares, vectors = decompose(gram)
        squares[:-1] = -1e-13
        return squares, vectors

    monkeypatch.setattr(torch.linalg, "eigh", rounded)
    squares, _ = fedkd._spectrum(delta)
    assert squares[1:].tolist() == [0.0] * 5 and squares[0] > 0
    payload = compressed({"w": delta}, 1.0)
    assert payload["s/w"].shape == (1,)
    assert torch.allclose(expanded(payload, {"w": delta})["w"], delta, rtol=1e-5)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_model_that_diverged_is_sent_as_not_finite(value: float) -> None:
    """A round of it is recorded as one that diverged; a decomposition would raise instead."""
    delta = matrix(8, 6)
    delta[2, 3] = value
    found = expanded(compressed({"w": delta}, 0.9), {"w": delta})["w"]
    assert not bool(found.isfinite().all())
