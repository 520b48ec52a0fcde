"""Convolutions of maps of up to 2×2, computed as one matrix product on a CPU.

    Convolution(...)(x)  =  plain(x, weight, bias, stride, padding)

Of a map of 2×2 a kernel of 3×3 with padding 1 meets every pixel at each of its four places, and of a map of 1×1 at its
one place. So every output pixel is a product of the whole map with a window of the kernel, and nothing is multiplied
with padding: 16 products of channels where a convolution makes 36, 4 for 9 with stride 2, and 1 for 9 on a map of 1×1.
The windows of few channels are laid one below the other into one matrix at every call; with more channels that would
move more memory than it is worth, and their rows are multiplied where they lie.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainables.kernels import on_a_cpu

#: Up to so many pixels a side. On larger maps little is padding, and the windows become a large matrix.
_LARGEST = 2
#: Up to so many products of channels the windows are laid into one matrix.
_LAID = 1 << 14


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
        if not (down and right and on_a_cpu(x)):
            return super().forward(x)
        pixels, kernels = x.permute(0, 2, 3, 1).contiguous(), self.weight.permute(0, 2, 3, 1)
        made: Tensor = _Products.apply(pixels, kernels, down, right)
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
        ctx.places = places = tuple(product(down, right))
        ctx.laid = kernels.shape[0] * kernels.shape[3] <= _LAID
        if ctx.laid:
            made = x.flatten(1) @ _windows(kernels, x, places).t()
        else:
            made = x.new_empty(len(x), len(places), len(kernels))
            for at, (top, left) in enumerate(places):
                pixel = made[:, at]
                for row in range(x.shape[1]):
                    window = _row(kernels, x, top + row, left).t()
                    torch.addmm(pixel, x[:, row].flatten(1), window, beta=int(row > 0), out=pixel)
        return made.view(len(x), len(down), len(right), len(kernels))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        x, kernels = ctx.saved_tensors
        of_x, of_kernels = (
            gradient.new_zeros(tensor.shape) if needed else None
            for tensor, needed in zip((x, kernels), ctx.needs_input_grad[:2], strict=True)
        )
        pixels = gradient.flatten(1).view(len(x), len(ctx.places), len(kernels))
        if ctx.laid:
            if of_x is not None:
                of_x = (pixels.flatten(1) @ _windows(kernels, x, ctx.places)).view(x.shape)
            if of_kernels is not None:
                of_windows = (pixels.flatten(1).t() @ x.flatten(1)).view(-1, len(kernels), *x.shape[1:])
                for (top, left), own in zip(ctx.places, of_windows, strict=True):
                    of_kernels[:, top : top + x.shape[1], left : left + x.shape[2]] += own
            return of_x, of_kernels, None, None
        for at, (top, left) in enumerate(ctx.places):
            for row in range(x.shape[1]):
                if of_x is not None:
                    of_x[:, row].flatten(1).addmm_(pixels[:, at], _row(kernels, x, top + row, left))
                if of_kernels is not None:
                    _row(of_kernels, x, top + row, left).addmm_(pixels[:, at].t(), x[:, row].flatten(1))
        return of_x, of_kernels, None, None


#: First row and column of an output pixel's window in the kernel.
Places = tuple[tuple[int, int], ...]


def _windows(kernels: Tensor, x: Tensor, places: Places) -> Tensor:
    """What the output pixels meet of kernels `(O, k, k, C)`, one below the other: `(H·W·O, h·w·C)`."""
    height, width = x.shape[1:3]
    windows = [kernels[:, top : top + height, left : left + width] for top, left in places]
    return (windows[0] if len(windows) == 1 else torch.cat(windows)).flatten(1)


def _row(kernels: Tensor, x: Tensor, row: int, left: int) -> Tensor:
    """What a row of the map `x` meets in a row of the kernels, `(O, w·C)`; a view where channels come last."""
    return kernels[:, row, left : left + x.shape[2]].flatten(1)
