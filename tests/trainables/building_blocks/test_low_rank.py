"""Compressed tensors beside PyTorch's own decomposition, and what a decomposition of the smaller product must hold."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from trainables.building_blocks import low_rank
from trainables.building_blocks.low_rank import compressed, expanded


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
    squares, _ = low_rank._spectrum(matrix(rows, columns))
    least = min(rows, columns)
    assert seen == [(least, least)]
    assert squares.shape == (least,)


@pytest.mark.parametrize(("rows", "columns"), [(12, 7), (7, 12), (9, 9)])
def test_the_factors_are_those_of_a_singular_value_decomposition(rows: int, columns: int) -> None:
    delta = matrix(rows, columns)
    u, s, v = torch.linalg.svd(delta.double(), full_matrices=False)
    squares, vectors = low_rank._spectrum(delta)
    assert squares.sqrt().tolist() == pytest.approx(s.tolist(), rel=1e-6)
    found = low_rank._factors(delta, squares[:3].sqrt(), vectors[:, :3])
    signs = u[:, :3].gather(0, u[:, :3].abs().argmax(0, keepdim=True)).sign()
    for one, other in zip(found, (u[:, :3] * signs, s[:3], (v[:3].T * signs).T), strict=True):
        assert one.dtype == torch.float32
        assert torch.allclose(one.double(), other, atol=1e-5)


def test_a_square_that_rounding_makes_negative_is_no_singular_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest eigenvalues of a matrix of rank one are zeros up to rounding, on either side."""
    delta = torch.outer(torch.arange(1.0, 9.0), torch.arange(2.0, 8.0))
    decompose = torch.linalg.eigh

    def rounded(gram: Tensor) -> tuple[Tensor, Tensor]:
        squares, vectors = decompose(gram)
        squares[:-1] = -1e-13
        return squares, vectors

    monkeypatch.setattr(torch.linalg, "eigh", rounded)
    squares, _ = low_rank._spectrum(delta)
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
