"""Convolutions of maps of up to 2×2, computed as one matrix product on a CPU.

    Convolution(...)(x)  =  plain(x, weight, bias, stride, padding)

Of a map of 2×2 a kernel of 3×3 with padding 1 meets every pixel at each of its four places, and of a map of 1×1 at its
one place. So every output pixel is a product of the whole map with a window of the kernel, and nothing is multiplied
with padding: 16 products of channels where a convolution makes 36, 4 for 9 with stride 2, and 1 for 9 on a map of 1×1.
The windows are laid one below the other into one matrix at every call.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: Up to so many pixels a side. On larger maps little is padding, and the windows become a large matrix.
_LARGEST = 2


def plain(x: Tensor, weight: Tensor, bias: Tensor | None, stride: int, padding: int) -> Tensor:
    """The reference: maps `(B, C, h, w)` and kernels `(O, C, k, k)` to `(B, O, H, W)`."""
    return F.conv2d(x, weight, bias, stride, padding)


class Convolution(nn.Conv2d):
    """A convolution, on a CPU a matrix product where the kernel meets the whole of a small map wherever it lies. To
    rounding, as sums have fewer terms; differentiable as often as wanted. Under bfloat16 and within PyTorch's `vmap` it
    stays PyTorch's."""

    def forward(self, x: Tensor) -> Tensor:
        """`(B, C, h, w)` to `(B, O, H, W)`."""
        down, right = self._starts(x.shape[2], 0), self._starts(x.shape[3], 1)
        if (
            not down
            or not right
            or x.device.type != "cpu"
            or torch.is_autocast_enabled("cpu")
            or torch._C._are_functorch_transforms_active()
        ):
            return super().forward(x)
        made: Tensor = _Products.apply(x.permute(0, 2, 3, 1), self.weight.permute(0, 2, 3, 1), down, right)
        return (made if self.bias is None else made + self.bias).permute(0, 3, 1, 2)

    def _starts(self, side: int, axis: int) -> tuple[int, ...]:
        """Along an axis of `side` pixels, for every output pixel where in the kernel its window begins; none where a
        product would not pay."""
        kernel, stride, padding = self.kernel_size[axis], self.stride[axis], self.padding[axis]
        assert isinstance(padding, int)
        starts = tuple(padding - stride * place for place in range((side + 2 * padding - kernel) // stride + 1))
        whole = all(0 <= start <= kernel - side for start in starts)
        return starts if side <= _LARGEST and side < kernel and whole else ()


class _Products(torch.autograd.Function):
    """Maps `(B, h, w, C)` and kernels `(O, k, k, C)` to `(B, H, W, O)`, with the windows' first rows and columns."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kernels: Tensor, down: tuple[int, ...], right: tuple[int, ...]) -> Tensor:
        ctx.save_for_backward(x, kernels)
        ctx.down, ctx.right = down, right
        windows = _windows(kernels, x, down, right)
        return (x.flatten(1) @ windows.t()).view(len(x), len(down), len(right), len(kernels))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        x, kernels = ctx.saved_tensors
        gradient, of_x, of_kernels = gradient.flatten(1), None, None
        if ctx.needs_input_grad[0]:
            of_x = (gradient @ _windows(kernels, x, ctx.down, ctx.right)).view(x.shape)
        if ctx.needs_input_grad[1]:
            of_kernels = gradient.new_zeros(kernels.shape)
            of_windows = (gradient.t() @ x.flatten(1)).view(-1, len(kernels), *x.shape[1:])
            for part, own in zip(_parts(of_kernels, x, ctx.down, ctx.right), of_windows, strict=True):
                part += own
        return of_x, of_kernels, None, None


def _parts(kernels: Tensor, x: Tensor, down: tuple[int, ...], right: tuple[int, ...]) -> Iterator[Tensor]:
    """For every output pixel what meets the map `x` of the kernels, `(O, h, w, C)`: views, each made when its turn
    comes, as those made before something is added would not follow what autograd notes of it."""
    height, width = x.shape[1:3]
    for top in down:
        for left in right:
            yield kernels[:, top : top + height, left : left + width]


def _windows(kernels: Tensor, x: Tensor, down: tuple[int, ...], right: tuple[int, ...]) -> Tensor:
    """These one below the other, `(H·W·O, h·w·C)`."""
    parts = list(_parts(kernels, x, down, right))
    return (parts[0] if len(parts) == 1 else torch.cat(parts)).flatten(1)
