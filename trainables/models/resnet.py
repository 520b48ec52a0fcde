"""Pre-activation ResNet-18 and ResNet-20 of DFRD, and ResNet-10, DHF's global model.

Stem conv 3×3 stride 1; four stages of basic blocks, widths 64-128-256-512, strides 1-2-2-2, [2,2,2,2] blocks
(ResNet-18, CIFAR-100), [2,3,2,2] (ResNet-20, Tiny-ImageNet and Food101) or [1,1,1,1] (ResNet-10); BatchNorm → ReLU →
average pool → linear.

    block(x):  a = relu(bn1(x));  out = conv2(relu(bn2(conv1(a)))) + shortcut
               shortcut = x, or conv1×1(a) where the shape changes

The scaler sits before each BatchNorm, as in HeteroFL's and DFDG's code. Everything that reaches a BatchNorm is a sum of
convolution outputs, so this equals scaling each convolution's output.

Whatever is added must have the same channels: the stem and all block outputs of stage s are one group, `stage{s}`; the
middle of each block is a group of its own, `stage{s}.{block}`.
"""

from __future__ import annotations

from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from trainables.kernels.convolution import Convolution
from trainables.models.base import Axis, Model, Shape
from trainables.models.layers import BatchNorm

_WIDTHS = (64, 128, 256, 512)


class _Block(nn.Module):
    def __init__(self, into: int, middle: int, out: int, stride: int, reshape: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = BatchNorm(into), BatchNorm(middle)
        self.conv1 = Convolution(into, middle, 3, stride, padding=1, bias=False)
        self.conv2 = Convolution(middle, out, 3, padding=1, bias=False)
        self.shortcut = nn.Conv2d(into, out, 1, stride, bias=False) if reshape else None

    def forward(self, x: Tensor, scaler: float) -> Tensor:
        active = F.relu(self.norm1(x, scaler=scaler))
        shortcut: Tensor = x if self.shortcut is None else self.shortcut(active)
        inner = F.relu(self.norm2(self.conv1(active), scaler=scaler))
        residual: Tensor = self.conv2(inner)
        return shortcut + residual


class ResNet(Model):
    """Groups `stage1` … `stage4` and, per block, `stage{s}.{block}`."""

    separable = True

    def __init__(self, shape: Shape, classes: int, rate: float, scaler: bool, *, blocks: tuple[int, ...]) -> None:
        super().__init__(shape, classes, rate, scaler)
        axis, channels = Axis("stage1"), self.channels("stage1", _WIDTHS[0])
        self.stem = nn.Conv2d(shape[0], channels, 3, padding=1, bias=False)
        self.declare("stem", axis)
        self.blocks = nn.ModuleList()
        for stage, (size, depth) in enumerate(zip(_WIDTHS, blocks, strict=True), start=1):
            out_axis, out = Axis(f"stage{stage}"), self.channels(f"stage{stage}", size)
            for i in range(depth):
                inner = Axis(f"stage{stage}.{i}")
                block = _Block(
                    channels,
                    self.channels(inner.group, size),
                    out,
                    stride=2 if axis != out_axis else 1,
                    reshape=axis != out_axis,
                )
                path = f"blocks.{len(self.blocks)}"
                self.blocks.append(block)
                self.declare(f"{path}.norm1", axis)
                self.declare(f"{path}.conv1", inner, axis)
                self.declare(f"{path}.norm2", inner)
                self.declare(f"{path}.conv2", out_axis, inner)
                if axis != out_axis:
                    self.declare(f"{path}.shortcut", out_axis, axis)
                channels, axis = out, out_axis
        self.norm = BatchNorm(channels)
        self.declare("norm", axis)
        self.feature_width = channels
        self.head = nn.Linear(channels, classes)
        self.declare("head", None, axis)

    def features(self, x: Tensor) -> Tensor:
        """`(B, p)`, p the channels of the last stage."""
        x = self.stem(x)
        for block in self.blocks:
            x = block(x, self.scale)
        return F.relu(self.norm(x, scaler=self.scale)).mean(dim=(2, 3))


MODELS = {
    "resnet10": partial(ResNet, blocks=(1, 1, 1, 1)),
    "resnet18": partial(ResNet, blocks=(2, 2, 2, 2)),
    "resnet20": partial(ResNet, blocks=(2, 3, 2, 2)),
}
