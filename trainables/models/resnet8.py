"""ResNet-8 as FedKF uses it on CIFAR: every BatchNorm is a GroupNorm with one channel per group.

Stem conv 3×3, 64 → norm → ReLU; three stages of one basic block, widths 64-128-256, strides 1-2-2; average pool;
linear.

    block(x):  relu(norm2(conv2(relu(norm1(conv1(x))))) + shortcut)
               shortcut = x, or norm(conv1×1(x)) where the shape changes

One channel per group normalises each channel of each sample over its own map, so no sample sees another one. A map of
1×1 has no variance, and only the bias is left of it: images need at least 5 pixels a side. No convolution has a bias;
weights are He's. The scaler sits before each norm, as in `trainables.models.resnet`, and so do the groups `stage1` …
`stage3` (block outputs) and `stage{s}.middle`.
"""

from __future__ import annotations

from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from trainables.kernels.convolution import Convolution
from trainables.models.base import Axis, Model, Shape

_WIDTHS = (64, 64, 128, 256)


class ResNet8(Model):
    """`feature_width` is 256 at rate 1."""

    convolutions = "he"
    separable = True

    def __init__(self, shape: Shape, classes: int, rate: float, scaler: bool) -> None:
        super().__init__(shape, classes, rate, scaler)
        axes = [Axis(f"stage{max(stage, 1)}") for stage in range(len(_WIDTHS))]
        widths = [self.channels(axis.group, size) for axis, size in zip(axes, _WIDTHS, strict=True)]
        self.stem, self.stem_norm = _conv(shape[0], widths[0], 3, 1), _norm(widths[0])
        self._declare("stem", axes[0])
        self.stages = nn.ModuleList()
        for stage, ((before, into), (after, out)) in enumerate(pairwise(zip(axes, widths, strict=True)), start=1):
            middle = Axis(f"{after.group}.middle")
            stride = 1 if stage == 1 else 2
            inner = self.channels(middle.group, _WIDTHS[stage])
            layers = {
                "conv1": _conv(into, inner, 3, stride),
                "conv1_norm": _norm(inner),
                "conv2": _conv(inner, out, 3, 1),
                "conv2_norm": _norm(out),
            }
            if stride > 1:
                layers |= {"shortcut": _conv(into, out, 1, stride), "shortcut_norm": _norm(out)}
            self.stages.append(nn.ModuleDict(layers))
            path = f"stages.{stage - 1}"
            self._declare(f"{path}.conv1", middle, before)
            self._declare(f"{path}.conv2", after, middle)
            if stride > 1:
                self._declare(f"{path}.shortcut", after, before)
        self.feature_width = widths[-1]
        self.head = nn.Linear(self.feature_width, classes)
        self.declare("head", None, axes[-1])

    def _declare(self, conv: str, out: Axis, into: Axis | None = None) -> None:
        """A convolution and its norm."""
        self.declare(conv, out, into)
        self.declare(f"{conv}_norm", out)

    def features(self, x: Tensor) -> Tensor:
        """`(B, p)`."""
        x = F.relu(self.stem_norm(self.scaled(self.stem(x))))
        for stage in self.stages:
            assert isinstance(stage, nn.ModuleDict)
            inner = F.relu(stage["conv1_norm"](self.scaled(stage["conv1"](x))))
            inner = stage["conv2_norm"](self.scaled(stage["conv2"](inner)))
            shortcut = stage["shortcut_norm"](self.scaled(stage["shortcut"](x))) if "shortcut" in stage else x
            x = F.relu(inner + shortcut)
        return x.mean(dim=(2, 3))


def _conv(into: int, out: int, kernel: int, stride: int) -> Convolution:
    return Convolution(into, out, kernel, stride, padding=kernel // 2, bias=False)


def _norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(channels, channels)


MODELS = {"resnet8": ResNet8}
