"""FedKF's image generator: from noise alone, without labels.

    z ~ N(0, I) (B, d)  →  g(z) (B, ch, H, W), normalised as the data set's images are

| layer                       | output                            |
|-----------------------------|-----------------------------------|
| linear, BN                  | 128 × ⌈H/4⌉ × ⌈W/4⌉               |
| ×2 nearest, conv 3×3, BN, LeakyReLU 0.2 | 128, twice the side   |
| ×2 nearest, conv 3×3, BN, LeakyReLU 0.2 | 64, four times the side |
| conv 3×3, sigmoid           | ch, cut to H × W about the centre |
| (s - mean) / std            | what a model is fed               |

32×32 starts at 8×8 as published, 28×28 at 7×7, 8×8 at 2×2. Below 28 pixels all widths are halved: the published ones
cost three times what a classifier for such images does. BatchNorm uses the batch's statistics and keeps none: the
generator is never used outside training. Convolution weights are He's, the rest follows PyTorch's default distributions
(`models.initialise` draws them).

Differs from the authors' code: BN's eps is the usual 1e-5; theirs passes 0.8 for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainables.kernels.upsampling import Enlarging
from trainables.models.base import initialise
from trainables.models.layers import BatchNorm


class NoiseGenerator(nn.Module):
    """The generator for images of `shape` (channels, height, width) of a data set with that `mean` and `std` per
    channel.

    Built with the weights of a fixed seed (`models.initialise` draws others); the global generator is left as it
    was."""

    convolutions: Literal["default", "he"] = "he"

    def __init__(
        self, shape: tuple[int, int, int], noise_dim: int, mean: Sequence[float], std: Sequence[float]
    ) -> None:
        super().__init__()
        self.shape, self.noise_dim = shape, noise_dim
        self.start = (-(-shape[1] // 4), -(-shape[2] // 4))
        wide = 128 if max(shape[1:]) >= 28 else 64
        with torch.random.fork_rng(devices=[]):
            self.linear, self.norm0 = nn.Linear(noise_dim, wide * self.start[0] * self.start[1]), BatchNorm(wide)
            self.conv1, self.norm1 = Enlarging(wide, wide), BatchNorm(wide)
            self.conv2, self.norm2 = Enlarging(wide, wide // 2), BatchNorm(wide // 2)
            self.conv3 = nn.Conv2d(wide // 2, shape[0], 3, padding=1)
        self.mean: Tensor
        self.std: Tensor
        self.register_buffer("mean", torch.tensor(mean)[:, None, None], persistent=False)
        self.register_buffer("std", torch.tensor(std)[:, None, None], persistent=False)
        initialise(self, torch.Generator().manual_seed(0))

    def forward(self, z: Tensor) -> Tensor:
        """Noise `(B, d)` to model inputs `(B, ch, H, W)`."""
        x = self.norm0(self.linear(z).view(len(z), -1, *self.start))
        x = F.leaky_relu(self.norm1(self.conv1(x)), 0.2)
        x = F.leaky_relu(self.norm2(self.conv2(x)), 0.2)
        images = torch.sigmoid(self.conv3(x))
        height, width = self.shape[1:]
        top, left = (images.shape[2] - height) // 2, (images.shape[3] - width) // 2
        return (images[:, :, top : top + height, left : left + width] - self.mean) / self.std
