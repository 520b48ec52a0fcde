"""LeNet-5 as FedMD-CG's text describes it: two convolutions are the extractor, three linear layers the classifier.

conv 5×5, 6 → ReLU → max-pool 2 → conv 5×5, 16 → ReLU → max-pool 2                            (features)
→ linear 120 → ReLU → linear 84 → ReLU → linear C                                             (head)

p = 256 on 28×28 and 400 on 32×32. A side of less than 28 is padded with zeros to 28, evenly on both ends.
The scaler acts on the two convolutions. Pooling comes before the ReLU, which gives the same values and gradients.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from trainables.models.base import Axis, Model, Shape


class LeNet5Paper(Model):
    """Groups `conv1` (6), `conv2` (16), `fc1` (120) and `fc2` (84)."""

    def __init__(self, shape: Shape, classes: int, rate: float, scaler: bool) -> None:
        super().__init__(shape, classes, rate, scaler)
        channels, height, width = shape
        conv1, conv2, fc1, fc2 = (
            self.channels(name, n) for name, n in (("conv1", 6), ("conv2", 16), ("fc1", 120), ("fc2", 84))
        )
        top, left = max(28 - height, 0), max(28 - width, 0)
        self.pad = (left // 2, left - left // 2, top // 2, top - top // 2)
        area = _map_side(height + top) * _map_side(width + left)

        self.conv1, self.conv2 = nn.Conv2d(channels, conv1, 5), nn.Conv2d(conv1, conv2, 5)
        self.feature_width = conv2 * area
        self.head = nn.Sequential(
            nn.Linear(self.feature_width, fc1), nn.ReLU(), nn.Linear(fc1, fc2), nn.ReLU(), nn.Linear(fc2, classes)
        )

        self.declare("conv1", Axis("conv1"))
        self.declare("conv2", Axis("conv2"), Axis("conv1"))
        self.declare("head.0", Axis("fc1"), Axis("conv2", repeat=area))
        self.declare("head.2", Axis("fc2"), Axis("fc1"))
        self.declare("head.4", None, Axis("fc2"))

    def features(self, x: Tensor) -> Tensor:
        """`(B, p)`, channel-major."""
        if any(self.pad):
            x = F.pad(x, self.pad)
        x = F.relu(F.max_pool2d(self.scaled(self.conv1(x)), 2))
        return F.relu(F.max_pool2d(self.scaled(self.conv2(x)), 2)).flatten(1)


def _map_side(side: int) -> int:
    """Side of the last feature map for an image side of at least 28."""
    return ((side - 4) // 2 - 4) // 2


MODELS = {"lenet5_paper": LeNet5Paper}
