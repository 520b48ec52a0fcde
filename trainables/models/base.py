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
from torch import Tensor, nn

from search_spaces.errors import UserError, sentence
from trainables.models.layers import STATISTICS, BatchNorm
from trainables.rng import normal_, uniform_

Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Axis:
    """One tensor dimension that shrinks with the width: `group` names the channels, each of which owns `repeat`
    entries.

    `repeat` is H·W where a flattened feature map feeds a linear layer: entries c·H·W … (c+1)·H·W − 1 belong to channel
    c."""

    group: str
    repeat: int = 1


Axes = tuple[Axis | None, ...]


def width(size: int, rate: float) -> int:
    """ceil(R·n), with R taken as the nearest fraction of small denominator so that 0.1·30 is 3 and not
    ceil(3.0000000000000004)."""
    return math.ceil(Fraction(rate).limit_denominator(10_000) * size)


class Model(nn.Module):
    """`forward(x) = head(features(x))`, with x normalised samples `(B, ch, H, W)`, as `trainables.data.dataset` says,
    and logits `(B, classes)`.

    axes: for every parameter and running statistic, one entry per dimension; None where the dimension does not change
    with the width.
    group_sizes: channels of every group at rate 1, whatever rate the model was built at.
    feature_width: p of `features(x)`, `(B, p)`, at the model's own rate.
    """

    head: nn.Module
    feature_width: int
    #: The name it was built by.
    name: str
    #: Distribution of convolution weights, see `initialise`.
    convolutions: Literal["default", "he"] = "default"
    #: Whether samples are sequences of tokens; its constructor then also takes the size of the vocabulary.
    reads_tokens = False
    #: Whether channels meet in convolutions and linear layers alone, so that several narrow models can be laid side by
    #: side as one (`side_by_side`).
    separable = False
    #: Whether `draw` says how its weights are drawn, in place of `initialise`.
    draws_itself = False

    def __init__(self, shape: Shape, classes: int, rate: float, scaler: bool) -> None:
        super().__init__()
        if not 0 < rate <= 1:
            raise UserError(sentence("rate", "a number above 0 and at most 1", rate))
        self.shape, self.classes, self.rate = shape, classes, rate
        self.factor = 1.0 / rate if scaler else 1.0
        self.keeps_statistics = False
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

    def keep_statistics(self) -> None:
        """Makes batch normalisation keep running statistics. Those of a layer's channels belong to the channels, so
        sub-models are cut and put back with them."""
        for name, part in self.named_modules():
            if isinstance(part, BatchNorm):
                part.keep_statistics()
                self.axes |= {f"{name}.{statistic}": self.axes[f"{name}.weight"] for statistic in STATISTICS}
                self.keeps_statistics = True

    @property
    def scale(self) -> float:
        """What `scaled` multiplies by in the present mode. Running statistics are those of scaled inputs, so where they
        are kept it is 1/R in evaluation too."""
        return self.factor if self.training or self.keeps_statistics else 1.0

    def scaled(self, x: Tensor) -> Tensor:
        """The scaler of HeteroFL: times 1/R in training mode, so that narrow and wide clients agree in magnitude."""
        return x * self.scale if self.scale != 1.0 else x

    def draw(self, generator: torch.Generator) -> None:
        """Redraws all weights from `generator`."""
        raise NotImplementedError

    def features(self, x: Tensor) -> Tensor:
        """The representation that the head reads, `(B, p)`."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """Logits `(B, classes)`."""
        logits: Tensor = self.head(self.features(x))
        return logits


def initialise(module: nn.Module, generator: torch.Generator) -> None:
    """Redraws every parameter of `module` from `generator` with PyTorch's default distributions, in the order of
    `modules()`.

    Convolution and linear weights and biases ~ U(−b, b) with b = 1/sqrt(fan_in); embeddings ~ N(0, 1); normalisation
    weight 1, bias 0. A module with `convolutions = "he"` draws convolution weights from N(0, 2/(k·k·out)) instead (He
    et al. 2015, fan out). A model that `draws_itself` does so. The same generator state gives the same bits; the global
    generator is not touched."""
    whole = {name: part for name, part in module.named_modules() if isinstance(part, Model) and part.draws_itself}
    for part in whole.values():
        part.draw(generator)
    for name, part in module.named_modules():
        if any(name == own or not own or name.startswith(f"{own}.") for own in whole):
            continue
        if isinstance(part, nn.Conv2d | nn.Linear):
            bound = 1.0 / math.sqrt(part.weight[0].numel())
            if isinstance(part, nn.Conv2d) and getattr(module, "convolutions", "default") == "he":
                normal_(part.weight, 0.0, math.sqrt(2.0 / part.weight[:, 0].numel()), generator)
            else:
                uniform_(part.weight, -bound, bound, generator)
            if part.bias is not None:
                uniform_(part.bias, -bound, bound, generator)
        elif isinstance(part, nn.Embedding):
            normal_(part.weight, 0.0, 1.0, generator)
        elif isinstance(part, nn.BatchNorm2d | nn.GroupNorm):
            part.reset_parameters()
        elif next(part.parameters(recurse=False), None) is not None:
            raise TypeError(f"initialise does not know {type(part).__name__} ({name}): give it a distribution here")
