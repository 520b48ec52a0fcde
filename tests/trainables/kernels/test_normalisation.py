"""What is normalised after pooling against what is normalised before it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.exact import assert_as_exact
from trainables.kernels.normalisation import plain
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


def test_another_statistic_than_that_of_the_whole_map_is_found() -> None:
    """As of the rows that are pooled, without the last."""
    norm, x = norm_and_maps((5, 3, 9, 7), False)
    with pytest.raises(AssertionError, match="from float64"):
        assert_as_exact(norm(x[:, :, :8, :6], pool=True), norm(x, pool=True), exactly(norm, x))
