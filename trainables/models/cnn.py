"""The four-layer CNN with BatchNorm of DFRD, 64-128-256-512, and a three-layer one for small images.

Each layer: conv 3×3, padding 1 → scaler → BatchNorm → ReLU → max-pool 2; then global average pooling and one linear
layer. 1.56 M parameters at rate 1 on 3×32×32 and 10 classes, 6.7 k at rate 1/16.

Pooling comes before the ReLU: max and ReLU commute, values and gradients are the same, a quarter of the ReLU's work.
A map that has shrunk to less than 2×2 is not pooled any more (8×8 images reach 1×1 after three layers).
"""

from __future__ import annotations

from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from trainables.kernels.convolution import Convolution
from trainables.models.base import Axis, Model, Shape
from trainables.models.layers import BatchNorm


class CNN(Model):
    """Groups `conv1` … `convN`, one per layer."""

    separable = True

    def __init__(self, shape: Shape, classes: int, rate: float, scaler: bool, *, widths: tuple[int, ...]) -> None:
        super().__init__(shape, classes, rate, scaler)
        self.convs, self.norms = nn.ModuleList(), nn.ModuleList()
        channels, axis = shape[0], None
        for i, size in enumerate(widths):
            out_axis, out = Axis(f"conv{i + 1}"), self.channels(f"conv{i + 1}", size)
            self.convs.append(Convolution(channels, out, 3, padding=1))
            self.norms.append(BatchNorm(out))
            self.declare(f"convs.{i}", out_axis, axis)
            self.declare(f"norms.{i}", out_axis)
            channels, axis = out, out_axis
        self.feature_width = channels
        self.head = nn.Linear(channels, classes)
        self.declare("head", None, axis)

    def features(self, x: Tensor) -> Tensor:
        """`(B, p)`, p the channels of the last layer."""
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = F.relu(norm(conv(x), pool=True, scaler=self.scale), inplace=True)
        return x.mean(dim=(2, 3))


MODELS = {
    "cnn": partial(CNN, widths=(64, 128, 256, 512)),
    "cnn_small": partial(CNN, widths=(64, 128, 256)),
}
