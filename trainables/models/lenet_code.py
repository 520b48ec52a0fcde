"""The backbone behind FedMD-CG's reported numbers (from its code).

conv 3×3 stride 2, 16 → BatchNorm → ReLU → max-pool 2 → conv 3×3 stride 2, 32 → BatchNorm → ReLU → max-pool 2
(features) → linear h → linear C, with no activation between the two
(head)

28×28 and 32×32 both leave 32 maps of 2×2, p = 128. h is 128 for EMNIST and CIFAR-10 (`lenet_code`) and 64 for
Fashion-MNIST (`lenet_code_64`). Images of less than 16 pixels are convolved with stride 1, so that 8×8 digits leave 2×2
maps too. The scaler acts on the two convolutions. Pooling comes before the ReLU, which gives the same values. The
code's BatchNorm keeps running statistics and evaluates with them: `batch_norm: running`.
"""

from __future__ import annotations

from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from trainables.models.base import Axis, Model, Shape
from trainables.models.layers import BatchNorm


class LeNetCode(Model):
    """Groups `conv1` (16), `conv2` (32) and `fc` (`hidden`)."""

    separable = True

    def __init__(self, shape: Shape, classes: int, rate: float, scaler: bool, *, hidden: int) -> None:
        super().__init__(shape, classes, rate, scaler)
        channels, height, width = shape
        first, second, middle = self.channels("conv1", 16), self.channels("conv2", 32), self.channels("fc", hidden)
        stride = 1 if min(height, width) < 16 else 2
        area = _map_side(height, stride) * _map_side(width, stride)

        self.conv1, self.norm1 = nn.Conv2d(channels, first, 3, stride, padding=1), BatchNorm(first)
        self.conv2, self.norm2 = nn.Conv2d(first, second, 3, stride, padding=1), BatchNorm(second)
        self.feature_width = second * area
        self.head = nn.Sequential(nn.Linear(self.feature_width, middle), nn.Linear(middle, classes))

        self.declare("conv1", Axis("conv1"))
        self.declare("norm1", Axis("conv1"))
        self.declare("conv2", Axis("conv2"), Axis("conv1"))
        self.declare("norm2", Axis("conv2"))
        self.declare("head.0", Axis("fc"), Axis("conv2", repeat=area))
        self.declare("head.1", None, Axis("fc"))

    def features(self, x: Tensor) -> Tensor:
        """`(B, p)`, channel-major."""
        x = F.relu(self.norm1(self.conv1(x), pool=True, scaler=self.scale))
        return F.relu(self.norm2(self.conv2(x), pool=True, scaler=self.scale)).flatten(1)


def _map_side(side: int, stride: int) -> int:
    for _ in range(2):
        side = (side - 1) // stride + 1
        side = side // 2 if side >= 2 else side
    return side


MODELS = {"lenet_code": partial(LeNetCode, hidden=128), "lenet_code_64": partial(LeNetCode, hidden=64)}
