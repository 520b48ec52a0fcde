"""Transposed convolutions without bias, computed in another way on a CPU where PyTorch's own is slow.

Upsampling(...)(x)  =  plain(x, weight, stride, padding)
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainables.kernels import on_a_cpu


def plain(x: Tensor, weight: Tensor, stride: int, padding: int) -> Tensor:
    """The reference: maps `(B, C, h, w)` and weights `(C, O, a, b)` to `(B, O, H, W)`."""
    return F.conv_transpose2d(x, weight, None, stride, padding)


def plain_enlarging(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The reference: maps `(B, C, h, w)` and weights `(O, C, 3, 3)` to `(B, O, 2h, 2w)`."""
    return F.conv2d(F.interpolate(x, scale_factor=2), weight, bias, padding=1)


class Enlarging(nn.Conv2d):
    """A convolution 3×3 with padding 1 of a map that was enlarged to twice its side, every pixel repeated.

    Of the nine enlarged pixels that an output pixel meets only four differ. So on a CPU it is a transposed convolution
    of the map itself, whose 4×4 weights are sums of these: 16 products for a pixel in place of 36, to rounding. On maps
    of less than 4×4 it loses. Under bfloat16 and within PyTorch's `vmap` both operations stay PyTorch's."""

    def __init__(self, into: int, out: int) -> None:
        super().__init__(into, out, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, C, h, w)` to `(B, O, 2h, 2w)`."""
        if min(x.shape[2:]) < 4 or not on_a_cpu(x):
            return plain_enlarging(x, self.weight, self.bias)
        summed = _sums(_sums(self.weight, 2), 3).transpose(0, 1).contiguous(memory_format=torch.channels_last)
        return F.conv_transpose2d(x, summed, self.bias, stride=2, padding=1)


def _sums(weight: Tensor, axis: int) -> Tensor:
    """Along an axis of three weights the four sums with which a pixel enters the outputs around it: it lies under the
    last weight of the output before it, under two weights of each of its own two, and under the first of the next."""
    first, middle, last = weight.unbind(axis)
    return torch.stack([last, middle + last, first + middle, first], dim=axis)


class Upsampling(nn.ConvTranspose2d):
    """A transposed convolution without bias, on a CPU computed in another way where PyTorch's own is slow.

    The first layer, from 1×1, is a matrix product and nothing else, in an eighth of the time: without gradients and in
    bfloat16, to rounding (without gradients to the same bits from up to 256 values, where it was compared). With
    gradients in float32 the convolution stays, as its backward sums in another order. 512 → 256 channels from 4×4 is a
    product in bfloat16, in a third of the time, and without gradients in float32 a convolution of eight images side by
    side, in four fifths of the time and to rounding; with fewer channels it would lose. The last layer, to the few
    channels of an image, is without gradients in float32 a product whose terms are summed up where they overlap, in a
    third to three fifths of the time and nearer to the exact sum."""

    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:
        """`(B, C, h, w)` to `(B, O, H, W)`."""
        if x.device.type != "cpu":
            return super().forward(x, output_size)
        low, plain = torch.is_autocast_enabled("cpu"), not torch.is_grad_enabled()
        if x.shape[2:] == (1, 1) and self.padding == (0, 0) and (low or plain):
            return (x.flatten(1) @ self._rows()).view(-1, *self.kernel_size, self.out_channels).permute(0, 3, 1, 2)
        if plain and not low and self.weight[0].numel() <= self.in_channels:
            return self._folded(x)
        made = 4 * x[:, :1].numel() * self.out_channels
        if (self.kernel_size, self.stride, self.padding) == ((4, 4), (2, 2), (1, 1)) and self.weight.numel() > made:
            if low:
                return self._overlapped(x)
            if plain and self.in_channels >= 512 and len(x) % 8 == 0:
                return self._side_by_side(x)
        return super().forward(x, output_size)

    def _rows(self) -> Tensor:
        """The weights `(C, O, a, b)` as `(C, a·b·O)`: a view, as they lie with channels last."""
        return self.weight.permute(0, 2, 3, 1).flatten(1)

    def _folded(self, x: Tensor) -> Tensor:
        """Every pixel's share of the output pixels that it reaches, summed up where they meet."""
        shares = torch.matmul(self.weight.flatten(1).t(), x.flatten(2))
        kernel, stride, padding = self.kernel_size, self.stride, self.padding
        assert not isinstance(padding, str)
        height, width = ((x.shape[2 + i] - 1) * stride[i] - 2 * padding[i] + kernel[i] for i in range(2))
        made = F.fold(shares, (height, width), kernel, padding=padding, stride=stride)
        return made.contiguous(memory_format=torch.channels_last)

    def _side_by_side(self, x: Tensor) -> Tensor:
        """Eight images in a row with a column of zeros after each, as rows of few pixels leave a core's vectors half
        empty."""
        batch, channels, height, width = x.shape
        apart = x.new_zeros(batch // 8, height, 8, width + 1, channels)
        apart[:, :, :, :width] = x.permute(0, 2, 3, 1).reshape(-1, 8, height, width, channels).transpose(1, 2)
        made = (
            super().forward(apart.view(-1, height, 8 * (width + 1), channels).permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        )
        images = made.reshape(-1, 2 * height, 8, 2 * (width + 1), self.out_channels)[:, :, :, : 2 * width].transpose(
            1, 2
        )
        return images.reshape(batch, 2 * height, 2 * width, -1).permute(0, 3, 1, 2)

    def _overlapped(self, x: Tensor) -> Tensor:
        """Every value spreads over 4×4 pixels, two apart; what falls on one pixel is summed, the rim of one pixel is
        cut off."""
        batch, channels, height, width = x.shape
        spread = x.permute(0, 2, 3, 1).reshape(-1, channels) @ self._rows()
        total: Tensor = _Overlap.apply(spread.view(batch, height, width, 2, 2, 2, 2, self.out_channels))
        # As a tensor of its own: the gradient of normalisation takes ten times as long on a view of a larger one.
        return total.view(batch, 2 * height + 2, 2 * width + 2, -1)[:, 1:-1, 1:-1].contiguous().permute(0, 3, 1, 2)


class _Overlap(torch.autograd.Function):
    """Sums 4×4 pixels, two apart, where they meet: `(B, h, w, 2, 2, 2, 2, O)`, both halves of the rows before the
    columns', to `(B, h+1, 2, w+1, 2, O)`. PyTorch's own backward of this fills and adds up four gradients of the
    whole."""

    generate_vmap_rule = True

    @staticmethod
    def forward(spread: Tensor) -> Tensor:
        batch, height, width, *_, channels = spread.shape
        total = spread.new_zeros(batch, height + 1, 2, width + 1, 2, channels)
        for down in range(2):
            for right in range(2):
                total[:, down : down + height, :, right : right + width] += spread[:, :, :, down, :, right].transpose(
                    2, 3
                )
        return total

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient.unfold(1, 2, 1).unfold(3, 2, 1).permute(0, 1, 3, 6, 2, 7, 4, 5)
