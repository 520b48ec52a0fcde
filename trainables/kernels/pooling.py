"""A convolution and the max-pooling behind it as one operation, for LeNet's few channels on a CPU.

    pooled(conv, x)  =  plain(conv, x)  =  max_pool2d(conv(x), 2)

The four places that one pooled value is the largest of lie in the same window of (k+1)×(k+1) pixels. So the kernel is
laid into such a window at its four places, which makes four kernels out of one; windows are taken two pixels apart, and
the pooled map is the largest of four products. Zeros are multiplied along (36 for 25 at 5×5), but one matrix product
with 4·out rows fills a core where a convolution from 1 to 6 channels leaves most of it idle, and pooling compares whole
rows instead of neighbours. Values differ from the two operations' by rounding. Among equal values the first has the
gradient, as in PyTorch; rounding decides which they are where an image is of one colour.

For this, maps are stored in memory as (C, H, W, B), rows contiguous over the batch. `padded` stores images in this
order where it is faster, and `pooled` takes this way for maps that it finds stored in this order, and the plain one for
all others.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: From so many samples on it is faster to store them side by side. Windows of so many are made at once, to stay in the
#: cache.
FEWEST, AT_ONCE = 64, 128


def plain(conv: nn.Conv2d, x: Tensor) -> Tensor:
    """The reference of `pooled`: the two operations of PyTorch."""
    return plain_max_pool(conv(x))


def plain_max_pool(x: Tensor) -> Tensor:
    """The reference of `max_pool`: the largest of 2×2. A map of less than 2×2 is returned as it is."""
    return x if min(x.shape[-2:]) < 2 else F.max_pool2d(x, 2)


def padded(x: Tensor, pad: tuple[int, int, int, int]) -> Tensor:
    """What `F.pad(x, pad)` computes: images `(B, C, H, W)` within zeros, `pad` of them on the left, on the right, above
    and below."""
    batch, channels, height, width = x.shape
    if x.device.type != "cpu" or batch < FEWEST or channels > 1:
        return F.pad(x, pad) if any(pad) else x
    # As a matrix: its transpose is written in blocks, not value by value.
    return F.pad(x.reshape(batch, -1).t().contiguous().view(channels, height, width, batch), (0, 0, *pad)).permute(
        3, 0, 1, 2
    )


def pooled(conv: nn.Conv2d, x: Tensor) -> Tensor:
    """`max_pool2d(conv(x), 2)` for a convolution of odd kernel k×k, with bias, without padding or stride:
    `(B, C, H, W)` to `(B, O, (H-k+1)//2, (W-k+1)//2)`. Differentiable as often as wanted."""
    side_by_side = x.permute(1, 2, 3, 0)
    if not side_by_side.is_contiguous() or conv.bias is None:
        return max_pool(conv(x))
    kernels = _at_four_places(conv.weight)
    parts = [_largest(kernels, part, conv.kernel_size[0]) for part in side_by_side.split(AT_ONCE, dim=3)]
    largest = parts[0] if len(parts) == 1 else torch.cat(parts, dim=3)
    # A bias added to the largest gives what the largest of biased ones is, to the bit.
    return (largest + conv.bias[:, None, None, None]).permute(3, 0, 1, 2)


def _largest(kernels: Tensor, x: Tensor, k: int) -> Tensor:
    """Kernels `(4·O, C·(k+1)²)` and maps `(C, H, W, B)` to pooled maps `(O, h, w, B)`."""
    channels, batch, half = x.shape[0], x.shape[3], (k + 1) // 2
    height, width = ((side - k + 1) // 2 for side in x.shape[1:3])
    rows, columns = height + half - 1, width + half - 1
    # Every other row and column is a plane of its own: windows two pixels apart become neighbouring ones of half the
    # side.
    planes = (
        x[:, : 2 * rows, : 2 * columns]
        .reshape(channels, rows, 2, columns, 2, batch)
        .permute(0, 2, 4, 1, 3, 5)
        .reshape(-1, rows, columns, batch)
    )
    products = torch.mm(kernels, _Windows.apply(planes, half)).view(4, -1, height * width * batch)
    largest: Tensor = _Largest.apply(products)
    return largest.view(-1, height, width, batch)


@cache
@torch.inference_mode(False)  # training uses the tensor too, even if inference asked for it first
def _places(k: int, dtype: torch.dtype) -> Tensor:
    """`(k², 4·(k+1)²)` of ones and zeros: where in the window, seen as planes, each of a kernel's entries goes at each
    of the four places."""
    half = (k + 1) // 2
    places = torch.zeros(k, k, 4, 2, 2, half, half, dtype=dtype)
    for place in range(4):
        for row in range(k):
            for column in range(k):
                down, right = row + place // 2, column + place % 2
                places[row, column, place, down % 2, right % 2, down // 2, right // 2] = 1
    return places.view(k * k, -1)


def _at_four_places(weight: Tensor) -> Tensor:
    """Kernels `(O, C, k, k)` as rows `(4·O, C·(k+1)²)`, all kernels at the first place first."""
    out, into, k, _ = weight.shape
    rows = weight.reshape(out * into, k * k) @ _places(k, weight.dtype)
    return rows.view(out, into, 4, -1).permute(2, 0, 1, 3).reshape(4 * out, -1)


class _Windows(torch.autograd.Function):
    """All windows of size×size of planes `(C, H, W, B)`, as columns `(C·size², h·w·B)`. PyTorch's own backward of this
    visits single values."""

    generate_vmap_rule = True

    @staticmethod
    def forward(planes: Tensor, size: int) -> Tensor:
        return (
            planes.unfold(1, size, 1)
            .unfold(2, size, 1)
            .permute(0, 4, 5, 1, 2, 3)
            .reshape(planes.shape[0] * size * size, -1)
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int], output: Tensor) -> None:
        ctx.shape, ctx.size = inputs[0].shape, inputs[1]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (channels, height, width, batch), size = ctx.shape, ctx.size
        rows, columns = height - size + 1, width - size + 1
        gradient = gradient.view(channels, size, size, rows, columns * batch)
        total = gradient.new_zeros(channels, height, width * batch)
        for down in range(size):
            for right in range(size):
                total[:, down : down + rows, right * batch : (right + columns) * batch].add_(gradient[:, down, right])
        return total.view(ctx.shape), None


class _Largest(torch.autograd.Function):
    """The largest of four: `(4, O, M)` to `(O, M)`. The first of equal ones has the gradient; PyTorch's `maximum`
    divides it."""

    generate_vmap_rule = True

    @staticmethod
    def forward(four: Tensor) -> Tensor:
        return torch.maximum(torch.maximum(four[0], four[1]), torch.maximum(four[2], four[3]))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        four, largest = ctx.saved_tensors
        parts = []
        for one in four[:3]:
            beyond = torch.ops.aten.threshold_backward(
                gradient, largest - one, 0
            )  # the gradient where this is not the largest
            parts.append(gradient - beyond)
            gradient = beyond
        return torch.stack([*parts, gradient])


def max_pool(x: Tensor) -> Tensor:
    """Halves each side of `(B, C, H, W)`, rounding down: the largest of 2×2. A map of less than 2×2 is left alone.

    On a CPU, where no gradient is asked for, without the places that the gradient would need: the same bits, in nine
    tenths of the time from 32 channels on and a seventh of it at 4 or 6."""
    if min(x.shape[-2:]) < 2:
        return x
    if x.device.type != "cpu" or (x.requires_grad and torch.is_grad_enabled()):
        return F.max_pool2d(x, 2)
    height, width = x.shape[2] // 2 * 2, x.shape[3] // 2 * 2
    rows = torch.maximum(x[:, :, 0:height:2, :width], x[:, :, 1:height:2, :width])
    return torch.maximum(rows[..., 0::2], rows[..., 1::2])
