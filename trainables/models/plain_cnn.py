"""The two CNNs of DHF's clients, without normalisation: features of width 512 whatever the depth.

cnn2   the "4-layer CNN", FedAvg's network as in PFLlib: twice conv 5×5 (32, 64) → ReLU → max-pool 2, linear 512 → ReLU
cnn3   the "5-layer CNN", one convolution deeper: conv 3×3, padding 1 (32, 64, 128) → ReLU → max-pool 2, linear 512 →
       ReLU
       (features, 512) → linear C (head)

cnn2's convolutions have no padding; images with a side below 16, which would not survive two of them, are padded by 2
in each. A map that has shrunk to less than 2×2 is not pooled any more. The scaler acts on the convolutions. Pooling
comes before the ReLU, which gives the same values and gradients. 0.88 M parameters for cnn2 on 3×32×32 and 10 classes.
"""

from __future__ import annotations

from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from trainables.kernels.convolution import Convolution
from trainables.kernels.pooling import max_pool
from trainables.models.base import Axis, Model, Shape

_FEATURES = 512
_SMALL = 16


class PlainCNN(Model):
    """Groups `conv1` … `convN`, one per convolution, and `fc` (512)."""

    separable = True

    def __init__(
        self, shape: Shape, classes: int, rate: float, scaler: bool, *, widths: tuple[int, ...], kernel: int, pad: bool
    ) -> None:
        super().__init__(shape, classes, rate, scaler)
        padding = kernel // 2 if pad or min(shape[1:]) < _SMALL else 0
        self.convs = nn.ModuleList()
        channels, axis, sides = shape[0], None, list(shape[1:])
        for i, size in enumerate(widths):
            out_axis, out = Axis(f"conv{i + 1}"), self.channels(f"conv{i + 1}", size)
            self.convs.append(Convolution(channels, out, kernel, padding=padding))
            self.declare(f"convs.{i}", out_axis, axis)
            sides = [side + 2 * padding - kernel + 1 for side in sides]
            if min(sides) >= 2:
                sides = [side // 2 for side in sides]
            channels, axis = out, out_axis
        area = sides[0] * sides[1]
        self.feature_width = self.channels("fc", _FEATURES)
        self.fc = nn.Linear(channels * area, self.feature_width)
        self.head = nn.Linear(self.feature_width, classes)
        self.declare("fc", Axis("fc"), Axis(f"conv{len(widths)}", repeat=area))
        self.declare("head", None, Axis("fc"))

    def features(self, x: Tensor) -> Tensor:
        """`(B, 512)` at rate 1."""
        for conv in self.convs:
            x = F.relu(max_pool(self.scaled(conv(x))))
        return F.relu(self.fc(x.flatten(1)))


MODELS = {
    "cnn2": partial(PlainCNN, widths=(32, 64), kernel=5, pad=False),
    "cnn3": partial(PlainCNN, widths=(32, 64, 128), kernel=3, pad=True),
}
