"""What every model shares: how its tensors grow with width, the scaler, batch normalisation, initialisation.

A model is written for rate 1 and built at any rate R in (0, 1]: a group of n channels becomes ceil(R·n). Tensors whose
dimensions belong to one group always keep the same channels, so a sub-model is cut out of the full model by choosing an
index set per group (`Model.axes`) and nothing else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from search_spaces.errors import UserError, sentence

Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Axis:
    """One tensor dimension that shrinks with the width: `group` names the channels, each of which owns `repeat` entries.

    `repeat` is H·W where a flattened feature map feeds a linear layer: entries c·H·W … (c+1)·H·W − 1 belong to channel c."""

    group: str
    repeat: int = 1


Axes = tuple[Axis | None, ...]


def width(size: int, rate: float) -> int:
    """ceil(R·n), with R taken as the nearest fraction of small denominator so that 0.1·30 is 3 and not ceil(3.0000000000000004)."""
    return math.ceil(Fraction(rate).limit_denominator(10_000) * size)


class Model(nn.Module):
    """`forward(x) = head(features(x))`, with x normalised images `(B, ch, H, W)` and logits `(B, classes)`.

    axes: for every parameter, one entry per dimension; None where the dimension does not change with the width.
    group_sizes: channels of every group at rate 1, whatever rate the model was built at.
    feature_width: p of `features(x)`, `(B, p)`, at the model's own rate.
    """

    head: nn.Module
    feature_width: int
    #: The name it was built by.
    name: str
    #: Law of convolution weights, see `initialise`.
    convolutions: Literal["default", "he"] = "default"

    def __init__(self, shape: Shape, classes: int, rate: float, scaler: bool) -> None:
        super().__init__()
        if not 0 < rate <= 1:
            raise UserError(sentence("rate", "a number above 0 and at most 1", rate))
        self.shape, self.classes, self.rate = shape, classes, rate
        self.factor = 1.0 / rate if scaler else 1.0
        self.axes: dict[str, Axes] = {}
        self.group_sizes: dict[str, int] = {}

    def channels(self, group: str, size: int) -> int:
        """Declares `group` with `size` channels at rate 1 and returns its channels at the model's rate."""
        self.group_sizes[group] = size
        return width(size, self.rate)

    def declare(self, module: str, out: Axis | None, into: Axis | None = None) -> None:
        """Declares the axes of a convolution, linear or normalisation layer that is an attribute path of this model."""
        for name, parameter in self.get_submodule(module).named_parameters():
            rest = (into,) + (None,) * (parameter.dim() - 2) if parameter.dim() > 1 else ()
            self.axes[f"{module}.{name}"] = (out, *rest)

    def scaled(self, x: Tensor) -> Tensor:
        """The scaler of HeteroFL: times 1/R in training mode, so that narrow and wide clients agree in magnitude."""
        return x * self.factor if self.training and self.factor != 1.0 else x

    def features(self, x: Tensor) -> Tensor:
        """The representation that the head reads, `(B, p)`."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """Logits `(B, classes)`."""
        logits: Tensor = self.head(self.features(x))
        return logits


def max_pool(x: Tensor) -> Tensor:
    """Halves each side of `(B, C, H, W)`, rounding down: the largest of 2×2. A map of less than 2×2 is left alone.

    On a CPU, where no gradient is asked for, without the places that the gradient would need: the same bits, in nine tenths
    of the time from 32 channels on and a seventh of it at 4 or 6."""
    if min(x.shape[-2:]) < 2:
        return x
    if x.device.type != "cpu" or (x.requires_grad and torch.is_grad_enabled()):
        return F.max_pool2d(x, 2)
    height, breadth = x.shape[2] // 2 * 2, x.shape[3] // 2 * 2
    rows = torch.maximum(x[:, :, 0:height:2, :breadth], x[:, :, 1:height:2, :breadth])
    return torch.maximum(rows[..., 0::2], rows[..., 1::2])


class BatchNorm(nn.BatchNorm2d):
    """Normalises with the batch's own statistics in training *and* evaluation and keeps none, so that
    clients of different widths can be mixed.

    A batch with a single value per channel has zero variance, hence the output is the bias; PyTorch refuses it."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, track_running_stats=False)

    def forward(self, x: Tensor, pool: bool = False) -> Tensor:
        """`(B, C, H, W)` to the same shape, or with `pool` to that of `max_pool`.

        Without gradients, on a CPU, only what pooling leaves is normalised, by the statistics of the whole map: the largest stays the
        largest where weights are positive. To rounding; in float32 to the same bits where it was compared."""
        if x.shape[0] * x.shape[2] * x.shape[3] == 1:
            return x * 0 + self.bias.view(1, -1, 1, 1)
        if pool and self._after_pooling(x):
            return self._pooled(x)
        # Under bfloat16 the statistics are float32 inside all the same; vmap has no rule for weights of another type.
        normalised = F.batch_norm(x, None, None, self.weight.to(x.dtype), self.bias.to(x.dtype), True, 0.0, self.eps)
        return max_pool(normalised) if pool else normalised

    def _after_pooling(self, x: Tensor) -> bool:
        """Whether it is enough to normalise what pooling leaves. (A GPU would have to be waited for.)"""
        if x.device.type != "cpu" or torch.is_grad_enabled() or torch._C._are_functorch_transforms_active():
            return False
        return bool((self.weight > 0).all())

    def _pooled(self, x: Tensor) -> Tensor:
        mean, variance = torch.batch_norm_update_stats(x, None, None, 0.0)
        # As PyTorch forms it from a batch's statistics, in double precision; from given ones it would not, so it is given a variance of 1.
        scale = (1 / (variance.double() + self.eps).sqrt()).to(self.weight.dtype) * self.weight
        return F.batch_norm(max_pool(x), mean.to(scale.dtype), torch.ones_like(scale), scale, self.bias, False, 0.0, 0.0)


def initialise(module: nn.Module, generator: torch.Generator) -> None:
    """Redraws every parameter of `module` from `generator` with PyTorch's default laws, in the order of `modules()`.

    Convolution and linear weights and biases ~ U(−b, b) with b = 1/sqrt(fan_in); normalisation weight 1, bias 0. A module
    with `convolutions = "he"` draws convolution weights from N(0, 2/(k·k·out)) instead (He et al. 2015, fan out).
    The same generator state gives the same bits; the global generator is not touched."""
    for name, part in module.named_modules():
        if isinstance(part, nn.Conv2d | nn.Linear):
            bound = 1.0 / math.sqrt(part.weight[0].numel())
            with torch.no_grad():
                if isinstance(part, nn.Conv2d) and getattr(module, "convolutions", "default") == "he":
                    part.weight.normal_(0.0, math.sqrt(2.0 / part.weight[:, 0].numel()), generator=generator)
                else:
                    part.weight.uniform_(-bound, bound, generator=generator)
                if part.bias is not None:
                    part.bias.uniform_(-bound, bound, generator=generator)
        elif isinstance(part, nn.BatchNorm2d | nn.GroupNorm):
            part.reset_parameters()
        elif next(part.parameters(recurse=False), None) is not None:
            raise TypeError(f"initialise does not know {type(part).__name__} ({name}): give it a law here")
