"""The generator of features: from noise and a label to what a model's extractor would give (FedMD-CG, FedCG)."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainables.rng import uniform_


class FeatureGenerator(nn.Module):
    """G for features of `width` p, conditioned on the label by appending its one-hot vector to the noise.

    Built with the weights of a fixed seed (use `initialise` to draw others); the global generator is left as it was."""

    def __init__(self, width: int, classes: int, noise_dim: int, hidden: tuple[int, ...] = (512, 256)) -> None:
        super().__init__()
        self.width, self.classes, self.noise_dim = width, classes, noise_dim
        sizes = (noise_dim + classes, *hidden)
        layers: list[nn.Module] = []
        with torch.random.fork_rng(devices=[]):
            for before, after in pairwise(sizes):
                layers += [nn.Linear(before, after), _Norm(after), nn.ReLU()]
            self.layers = nn.Sequential(*layers, nn.Linear(sizes[-1], width))
        initialise(self, torch.Generator().manual_seed(0))

    def forward(self, z: Tensor, y: Tensor) -> Tensor:
        """Noise `(B, d)` and labels `(B,)` to features `(B, p)`."""
        made: Tensor = self.layers(torch.cat([z, F.one_hot(y, self.classes).to(z.dtype)], dim=1))
        return made


class _Norm(nn.BatchNorm1d):
    """A batch of one has no variance: it is normalised by the running statistics, which it does not change."""

    def forward(self, input: Tensor) -> Tensor:
        """`(B, n)` to the same shape."""
        if self.training and input.shape[0] == 1:
            return F.batch_norm(
                input, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps
            )
        return super().forward(input)


def initialise(generator: FeatureGenerator, random: torch.Generator) -> None:
    """Redraws all parameters from `random` with PyTorch's default distributions (weights and biases ~ U(±1/√fan_in);
    normalisation weight 1, bias 0) and resets the running statistics. The same state of `random` gives the same
    bits."""
    for part in generator.modules():
        if isinstance(part, nn.Linear):
            bound = part.in_features**-0.5
            uniform_(part.weight, -bound, bound, random)
            uniform_(part.bias, -bound, bound, random)
        elif isinstance(part, nn.BatchNorm1d):
            part.reset_parameters()
