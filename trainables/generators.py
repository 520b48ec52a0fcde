"""Conditional image generators of DFRD (its Tables 7, 8, 9) and one for other image sizes.

    h = generator.merge(z, y)      z ~ N(0, I) (B, d), labels y (B,)  ->  (B, d')
    s = generator(h)               images in [−1, 1], (B, ch, H, W)

| layer                | 32×32                    | 64×64                    | any other size                             |
|----------------------|--------------------------|--------------------------|--------------------------------------------|
| ConvT, ReLU          | d' → 512, k4 s1 → 4×4    | d' → 512, k4 s1 → 4×4    | d' → min(64·2ⁿ, 512), kernel a×b → a×b     |
| ConvT k4 s2, BN, ReLU| 256 → 8×8, 128 → 16×16   | 256, 128, 64 → 32×32     | n times, halving channels down to 64       |
| ConvT, tanh          | ch, k4 s2 → 32×32        | ch, k4 s2 → 64×64        | ch, k3 s1 p1, cut to H×W about the centre  |

For other sizes n = floor(log2(min(H, W)/4)) doublings start from a = ceil(H/2ⁿ), b = ceil(W/2ⁿ), so a starts between
4 and 7: 8×8 grows 4→8, 16×16 grows 4→8→16, 28×28 grows 7→14→28. The last layer works at full resolution because with
one doubling the paper's pattern would leave a single hidden layer. A doubling is halved at 512 channels as in the paper.

No biases. Convolution weights ~ N(0, 0.02), BatchNorm weights ~ N(1, 0.02), label embedding E ~ N(0, 1), all in terms of
standard deviations. BatchNorm keeps running statistics: an average of generators (DFRD's EMA) covers them too.

| merge operator | h             | d'    |
|----------------|---------------|-------|
| `mul`          | z · E(y)      | d     |
| `add`          | z + E(y)      | d     |
| `cat`          | [z, E(y)]     | 2d    |
| `ncat`         | [z, onehot(y)]| d + C |
| `none`         | z             | d     |
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from search_spaces.errors import UserError, unknown

MERGE_OPS = ("mul", "add", "cat", "ncat", "none")


class Generator(nn.Module):
    """The generator for images of `shape` (channels, height, width).

    embedding: E, `(classes, noise_dim)`; None for `ncat` and `none`, which have no embedding.
    width: d', the length of a merged vector.

    Built with the weights of a fixed seed (use `initialise` to draw others); the global generator is left as it was."""

    def __init__(self, shape: tuple[int, int, int], classes: int, noise_dim: int, merge_op: str = "mul") -> None:
        super().__init__()
        if merge_op not in MERGE_OPS:
            raise UserError(unknown("merge operator", merge_op, MERGE_OPS))
        self.shape, self.classes, self.noise_dim, self.merge_op = shape, classes, noise_dim, merge_op
        self.width = noise_dim + {"cat": noise_dim, "ncat": classes}.get(merge_op, 0)
        self.embedding: nn.Embedding | None
        with torch.random.fork_rng(devices=[]):
            self.embedding = nn.Embedding(classes, noise_dim) if merge_op in ("mul", "add", "cat") else None
            self.layers = nn.Sequential(*_layers(self.width, shape))
        initialise(self, torch.Generator().manual_seed(0))

    def merge(self, z: Tensor, y: Tensor) -> Tensor:
        """o(z, y): noise `(B, d)` and labels `(B,)` to `(B, d')`."""
        if self.merge_op == "none":
            return z
        if self.embedding is None:
            return torch.cat([z, F.one_hot(y, self.classes).to(z.dtype)], dim=1)
        e = self.embedding(y)
        if self.merge_op == "mul":
            return z * e
        return z + e if self.merge_op == "add" else torch.cat([z, e], dim=1)

    def forward(self, h: Tensor) -> Tensor:
        """Merged vectors `(B, d')` to images `(B, ch, H, W)` in [−1, 1]."""
        images: Tensor = self.layers(h[:, :, None, None])
        height, breadth = self.shape[1:]
        top, left = (images.shape[2] - height) // 2, (images.shape[3] - breadth) // 2
        return images[:, :, top:top + height, left:left + breadth]


def initialise(generator: Generator, random: torch.Generator) -> None:
    """Redraws all parameters of `generator` from `random` and resets the BatchNorm statistics.

    The same state of `random` gives the same bits; the global generator is not touched."""
    with torch.no_grad():
        for part in generator.modules():
            if isinstance(part, nn.ConvTranspose2d):
                part.weight.normal_(0.0, 0.02, generator=random)
            elif isinstance(part, nn.BatchNorm2d):
                part.reset_parameters()
                part.weight.normal_(1.0, 0.02, generator=random)
            elif isinstance(part, nn.Embedding):
                part.weight.normal_(0.0, 1.0, generator=random)


class Upsampling(nn.ConvTranspose2d):
    """A transposed convolution without bias, on a CPU computed in another way where PyTorch's own is slow.

    The first layer, from 1×1, is a matrix product and nothing else, in an eighth of the time: without gradients and in bfloat16, to rounding
    (without gradients to the same bits from up to 256 values, where it was compared). With gradients in float32 the convolution stays, as its backward sums in
    another order. 512 → 256 channels from 4×4 is a product in bfloat16, in a third of the time, and without gradients in float32 a
    convolution of eight images side by side, in four fifths of the time and to rounding; with fewer channels it would lose."""

    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:
        """`(B, C, h, w)` to `(B, O, H, W)`."""
        if x.device.type != "cpu":
            return super().forward(x, output_size)
        low, plain = torch.is_autocast_enabled("cpu"), not torch.is_grad_enabled()
        if x.shape[2:] == (1, 1) and self.padding == (0, 0) and (low or plain):
            return (x.flatten(1) @ self._rows()).view(-1, *self.kernel_size, self.out_channels).permute(0, 3, 1, 2)
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

    def _side_by_side(self, x: Tensor) -> Tensor:
        """Eight images in a row with a column of zeros after each, as rows of few pixels leave a core's vectors half empty."""
        batch, channels, height, breadth = x.shape
        apart = x.new_zeros(batch // 8, height, 8, breadth + 1, channels)
        apart[:, :, :, :breadth] = x.permute(0, 2, 3, 1).reshape(-1, 8, height, breadth, channels).transpose(1, 2)
        made = super().forward(apart.view(-1, height, 8 * (breadth + 1), channels).permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        images = made.reshape(-1, 2 * height, 8, 2 * (breadth + 1), self.out_channels)[:, :, :, : 2 * breadth].transpose(1, 2)
        return images.reshape(batch, 2 * height, 2 * breadth, -1).permute(0, 3, 1, 2)

    def _overlapped(self, x: Tensor) -> Tensor:
        """Every value spreads over 4×4 pixels, two apart; what falls on one pixel is summed, the rim of one pixel is cut off."""
        batch, channels, height, breadth = x.shape
        spread = x.permute(0, 2, 3, 1).reshape(-1, channels) @ self._rows()
        total: Tensor = _Overlap.apply(spread.view(batch, height, breadth, 2, 2, 2, 2, self.out_channels))
        # As a map of its own: normalisation visits the values of a part of one singly, and takes ten times as long for its gradient.
        return total.view(batch, 2 * height + 2, 2 * breadth + 2, -1)[:, 1:-1, 1:-1].contiguous().permute(0, 3, 1, 2)


class _Overlap(torch.autograd.Function):
    """Sums 4×4 pixels, two apart, where they meet: `(B, h, w, 2, 2, 2, 2, O)`, both halves of the rows before the columns', to
    `(B, h+1, 2, w+1, 2, O)`. PyTorch's own backward of this fills and adds up four gradients of the whole."""

    generate_vmap_rule = True

    @staticmethod
    def forward(spread: Tensor) -> Tensor:
        batch, height, breadth, *_, channels = spread.shape
        total = spread.new_zeros(batch, height + 1, 2, breadth + 1, 2, channels)
        for down in range(2):
            for right in range(2):
                total[:, down : down + height, :, right : right + breadth] += spread[:, :, :, down, :, right].transpose(2, 3)
        return total

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient.unfold(1, 2, 1).unfold(3, 2, 1).permute(0, 1, 3, 6, 2, 7, 4, 5)


def _layers(width: int, shape: tuple[int, int, int]) -> list[nn.Module]:
    channels, height, breadth = shape
    paper = {(32, 32): [512, 256, 128], (64, 64): [512, 256, 128, 64]}.get((height, breadth))
    doublings = max(min(height, breadth).bit_length() - 3, 0)
    start = (-(-height // 2**doublings), -(-breadth // 2**doublings))
    sizes = paper or [min(64 * 2**(doublings - i), 512) for i in range(doublings + 1)]

    layers: list[nn.Module] = [Upsampling(width, sizes[0], start, bias=False), nn.ReLU()]
    for before, after in pairwise(sizes):
        layers += [Upsampling(before, after, 4, stride=2, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
    last = Upsampling(sizes[-1], channels, 4, 2, 1, bias=False) if paper else Upsampling(sizes[-1], channels, 3, 1, 1, bias=False)
    return [*layers, last, nn.Tanh()]
