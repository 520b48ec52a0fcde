"""What is normalised after pooling against what is normalised before it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.exact import assert_as_exact
from trainables.kernels.normalisation import (
    normalised,
    normalised_and_followed,
    normalised_by,
    normalised_by_and_pooled,
    plain,
)
from trainables.models.layers import BatchNorm

pytestmark = pytest.mark.numeric


def norm_and_maps(shape: tuple[int, ...], negative: bool) -> tuple[BatchNorm, torch.Tensor]:
    """A layer with weights of its own, the first below zero where `negative`, and maps that are not centred."""
    norm = BatchNorm(shape[1])
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        norm.weight.copy_(torch.rand(shape[1], generator=generator) + 0.5)
        norm.weight[0] *= -1 if negative else 1
        norm.bias.copy_(torch.randn(shape[1], generator=generator))
    return norm, torch.randn(shape, generator=generator) * 2 + 1


def exactly(norm: BatchNorm, x: torch.Tensor) -> torch.Tensor:
    """In float64, by the formula; the statistics are those of the whole map, an odd last row included."""
    values = x.double()
    apart = (values - values.mean((0, 2, 3), keepdim=True)) / (
        values.var((0, 2, 3), correction=0, keepdim=True) + norm.eps
    ).sqrt()
    return F.max_pool2d(apart * norm.weight.double()[:, None, None] + norm.bias.double()[:, None, None], 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("shape", [(64, 32, 32, 32), (16, 8, 8, 8), (5, 3, 9, 7), (4, 40, 2, 2)])
def test_what_is_normalised_and_pooled_without_gradients(
    shape: tuple[int, ...], layout: torch.memory_format, negative: bool, dtype: torch.dtype
) -> None:
    norm, x = norm_and_maps(shape, negative)
    x = x.to(dtype).contiguous(memory_format=layout)
    with_gradients = norm(x, pool=True)
    assert torch.equal(with_gradients, plain(x, norm.weight, norm.bias, norm.eps))  # the same operations
    with torch.no_grad():
        made = norm(x, pool=True)
    assert made.dtype == dtype
    assert_as_exact(made, with_gradients, exactly(norm, x), eps=torch.finfo(dtype).eps)


def test_where_all_values_are_above_zero_a_weight_below_it_is_seen() -> None:
    """The smallest value of a window is then the largest one."""
    norm, x = norm_and_maps((5, 3, 8, 8), True)
    x = x.abs() + 1
    with torch.no_grad():
        made = norm(x, pool=True)
    assert_as_exact(made, norm(x, pool=True), exactly(norm, x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("gradients", [False, True])
def test_what_is_normalised_by_given_statistics(gradients: bool, negative: bool, dtype: torch.dtype) -> None:
    """Beside PyTorch's own operation and the formula in float64, of maps whose mean is large beside the deviation."""
    norm, x = norm_and_maps((6, 5, 8, 8), negative)
    x = (x + 40).to(dtype)
    generator = torch.Generator().manual_seed(1)
    mean, var = 40 + torch.rand(5, generator=generator), 2 + torch.rand(5, generator=generator)
    weight, bias = norm.weight.detach(), norm.bias.detach()
    wide = (t.double()[:, None, None] for t in (mean, var, weight, bias))
    mean64, var64, weight64, bias64 = wide
    exact = (x.double() - mean64) / (var64 + 0.5).sqrt() * weight64 + bias64
    expected = F.batch_norm(x, mean, var, weight, bias, training=False, eps=0.5)
    with torch.set_grad_enabled(gradients):
        made, pooled = (by(x, mean, var, weight, bias, 0.5) for by in (normalised_by, normalised_by_and_pooled))
    assert made.dtype == dtype and torch.equal(pooled, F.max_pool2d(made, 2))
    assert_as_exact(made, expected, exact, eps=torch.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_statistics_are_followed_beside_what_is_normalised(dtype: torch.dtype) -> None:
    norm, x = norm_and_maps((6, 5, 8, 8), True)
    x, weight, bias = x.to(dtype), norm.weight.detach(), norm.bias.detach()
    mean, var = torch.full((5,), 2.0), torch.full((5,), 3.0)
    made = normalised_and_followed(x, mean, var, weight, bias, 0.5, 0.25)
    assert made.dtype == dtype and torch.equal(made, normalised(x, weight, bias, 0.5))
    wide = x.double()
    torch.testing.assert_close(mean.double(), 0.75 * 2 + 0.25 * wide.mean((0, 2, 3)), rtol=1e-6, atol=1e-6)
    expected = 0.75 * 3 + 0.25 * wide.var((0, 2, 3), correction=1)
    torch.testing.assert_close(var.double(), expected, rtol=1e-6, atol=1e-6)
