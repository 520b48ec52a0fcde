"""LeNet-5 as FedKF uses it, without normalisation.

conv 5×5, 6 → ReLU → max-pool 2 → conv 5×5, 16 → ReLU → max-pool 2 → conv 5×5, 120 → ReLU   (features, 120 on 32×32)
→ linear 84 → ReLU → linear C                                                                (head)

Written for 32×32. A smaller side is padded with zeros to 32, evenly on both ends: for 28×28 this is the padding of 2
that LeCun's network has in its first layer; 8×8 digits sit in the middle of an empty field. A larger image leaves a map
of more than 1×1 after the third convolution, which is flattened (64×64: 9×9, so 9720 features).
The scaler acts on the three convolutions. Pooling comes before scaler and ReLU, which gives the same values and
gradients.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from trainables.kernels.pooling import padded, pooled
from trainables.models.base import Axis, Model, Shape


class LeNet5(Model):
    """Groups `conv1` (6), `conv2` (16), `conv3` (120) and `fc` (84)."""

    def __init__(self, shape: Shape, classes: int, rate: float, scaler: bool) -> None:
        super().__init__(shape, classes, rate, scaler)
        channels, height, width = shape
        first, second, third = (self.channels(f"conv{i + 1}", n) for i, n in enumerate((6, 16, 120)))
        hidden = self.channels("fc", 84)
        top, left = max(32 - height, 0), max(32 - width, 0)
        self.pad = (left // 2, left - left // 2, top // 2, top - top // 2)
        area = _map_side(height + top) * _map_side(width + left)

        self.conv1 = nn.Conv2d(channels, first, 5)
        self.conv2 = nn.Conv2d(first, second, 5)
        self.conv3 = nn.Conv2d(second, third, 5)
        self.feature_width = third * area
        self.head = nn.Sequential(nn.Linear(self.feature_width, hidden), nn.ReLU(), nn.Linear(hidden, classes))

        self.declare("conv1", Axis("conv1"))
        self.declare("conv2", Axis("conv2"), Axis("conv1"))
        self.declare("conv3", Axis("conv3"), Axis("conv2"))
        self.declare("head.0", Axis("fc"), Axis("conv3", repeat=area))
        self.declare("head.2", None, Axis("fc"))

    def features(self, x: Tensor) -> Tensor:
        """`(B, p)`, channel-major."""
        x = F.relu(self.scaled(pooled(self.conv1, padded(x, self.pad))))
        x = F.relu(self.scaled(pooled(self.conv2, x)))
        return F.relu(self.scaled(self._third(x))).flatten(1)

    def _third(self, x: Tensor) -> Tensor:
        """The third convolution. Over a map of its own size it is a matrix product, which takes a fraction of the
        time."""
        if x.shape[-2:] != self.conv3.weight.shape[-2:]:
            made: Tensor = self.conv3(x)
            return made
        # Channels last, as they are stored, so that nothing is copied.
        return F.linear(
            x.permute(0, 2, 3, 1).flatten(1), self.conv3.weight.permute(0, 2, 3, 1).flatten(1), self.conv3.bias
        )


def _map_side(side: int) -> int:
    """Side of the last feature map for an image side of at least 32."""
    return ((side - 4) // 2 - 4) // 2 - 4


MODELS = {"lenet5": LeNet5}
