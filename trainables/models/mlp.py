"""A small fully connected network, for data without an order of pixels such as points of a plane.

flatten → linear 64, ReLU → linear 64, ReLU (features) → linear C (head). It has no batch normalisation, so what it
predicts of a sample does not depend on the others. The scaler acts on both hidden layers.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from trainables.models.base import Axis, Model, Shape


class MLP(Model):
    """Groups `fc1` and `fc2` (64 each)."""

    def __init__(self, shape: Shape, classes: int, rate: float, scaler: bool) -> None:
        super().__init__(shape, classes, rate, scaler)
        first, second = self.channels("fc1", 64), self.channels("fc2", 64)
        self.fc1 = nn.Linear(shape[0] * shape[1] * shape[2], first)
        self.fc2 = nn.Linear(first, second)
        self.feature_width = second
        self.head = nn.Linear(second, classes)
        self.declare("fc1", Axis("fc1"))
        self.declare("fc2", Axis("fc2"), Axis("fc1"))
        self.declare("head", None, Axis("fc2"))

    def features(self, x: Tensor) -> Tensor:
        """`(B, p)`, p = 64 at full width."""
        x = F.relu(self.scaled(self.fc1(x.flatten(1))))
        return F.relu(self.scaled(self.fc2(x)))


MODELS = {"mlp": MLP}
