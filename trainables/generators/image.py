"""Conditional image generators of DFRD (its Tables 7, 8, 9) and one for other image sizes.

    h = generator.merge(z, y)      z ~ N(0, I) (B, d), labels y (B,)  ->  (B, d')
    s = generator(h)               images in [−1, 1], (B, ch, H, W)

| layer                 | 32×32                  | 64×64                  | any other size                             |
|-----------------------|------------------------|------------------------|--------------------------------------------|
| ConvT, ReLU           | d' → 512, k4 s1 → 4×4  | d' → 512, k4 s1 → 4×4  | d' → min(64·2ⁿ, 512), kernel a×b → a×b     |
| ConvT k4 s2, BN, ReLU | 256 → 8×8, 128 → 16×16 | 256, 128, 64 → 32×32   | n times, halving channels down to 64       |
| ConvT, tanh           | ch, k4 s2 → 32×32      | ch, k4 s2 → 64×64      | ch, k3 s1 p1, cut to H×W about the centre  |

For other sizes n = floor(log2(min(H, W)/4)) doublings start from a = ceil(H/2ⁿ), b = ceil(W/2ⁿ), so a starts between
4 and 7: 8×8 grows 4→8, 16×16 grows 4→8→16, 28×28 grows 7→14→28. The last layer works at full resolution because with
one doubling the paper's pattern would leave a single hidden layer. A doubling is halved at 512 channels as in the
paper.

No biases. Convolution weights ~ N(0, 0.02), BatchNorm weights ~ N(1, 0.02), label embedding E ~ N(0, 1), all in terms
of standard deviations. BatchNorm keeps running statistics: an average of generators (DFRD's EMA) covers them too.

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

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from search_spaces.errors import UserError, unknown
from trainables.kernels.upsampling import Upsampling
from trainables.rng import normal_

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
        e: Tensor = self.embedding(y)
        if self.merge_op == "mul":
            return z * e
        return z + e if self.merge_op == "add" else torch.cat([z, e], dim=1)

    def forward(self, h: Tensor) -> Tensor:
        """Merged vectors `(B, d')` to images `(B, ch, H, W)` in [−1, 1]."""
        images: Tensor = self.layers(h[:, :, None, None])
        height, image_width = self.shape[1:]
        top, left = (images.shape[2] - height) // 2, (images.shape[3] - image_width) // 2
        return images[:, :, top : top + height, left : left + image_width]


def initialise(generator: Generator, random: torch.Generator) -> None:
    """Redraws all parameters of `generator` from `random` and resets the BatchNorm statistics.

    The same state of `random` gives the same bits; the global generator is not touched."""
    for part in generator.modules():
        if isinstance(part, nn.ConvTranspose2d):
            normal_(part.weight, 0.0, 0.02, random)
        elif isinstance(part, nn.BatchNorm2d):
            part.reset_parameters()
            normal_(part.weight, 1.0, 0.02, random)
        elif isinstance(part, nn.Embedding):
            normal_(part.weight, 0.0, 1.0, random)


def _layers(width: int, shape: tuple[int, int, int]) -> list[nn.Module]:
    channels, image_height, image_width = shape
    paper = {(32, 32): [512, 256, 128], (64, 64): [512, 256, 128, 64]}.get((image_height, image_width))
    doublings = max(min(image_height, image_width).bit_length() - 3, 0)
    start = (-(-image_height // 2**doublings), -(-image_width // 2**doublings))
    sizes = paper or [min(64 * 2 ** (doublings - i), 512) for i in range(doublings + 1)]

    layers: list[nn.Module] = [Upsampling(width, sizes[0], start, bias=False), nn.ReLU()]
    for before, after in pairwise(sizes):
        layers += [Upsampling(before, after, 4, stride=2, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
    last = (
        Upsampling(sizes[-1], channels, 4, 2, 1, bias=False)
        if paper
        else Upsampling(sizes[-1], channels, 3, 1, 1, bias=False)
    )
    return [*layers, last, nn.Tanh()]
