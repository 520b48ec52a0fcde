"""Frozen CNNs of several widths that walk abreast: one map of a layer holds the channels of all of them.

    abreast = Abreast(models);   abreast(x)  =  [f_1(x), …, f_S(x)]   logits (B, Σ C);   features and head likewise

Of a narrow model on small images most operations are over before they have begun. Normalisation, pooling and ReLU know
channels only, so they are done once for all models; the first convolution reads the one image that all see, and the
heads are blocks of one matrix. The other convolutions stay each model's own. (`side_by_side` makes blocks of them too,
which pays for models of one small width.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.kernels.normalisation import normalised_and_pooled
from trainables.models.base import Model
from trainables.models.cnn import CNN
from trainables.models.layers import BatchNorm

#: Up to so many values of an image's first map, all models' together, this pays. Larger maps leave the cache between
#: one operation and the next.
LARGEST = 1 << 13
#: That of every normalisation layer of a CNN.
EPS = BatchNorm(1).eps


def fit(models: Sequence[Model]) -> TypeGuard[Sequence[CNN]]:
    """Whether these can walk abreast: several CNNs of one architecture that normalise by the batch, for small
    images."""
    if len(models) == 1 or any(not isinstance(model, CNN) or model.keeps_statistics for model in models):
        return False
    one, values = models[0], sum(model.get_parameter("convs.0.bias").numel() for model in models)
    return all(model.name == one.name for model in models) and values * one.shape[1] * one.shape[2] <= LARGEST


class Abreast:
    """Models that `fit`, frozen and in evaluation mode, with the weights that they have now."""

    def __init__(self, models: Sequence[CNN]) -> None:
        self._convs = [list(layer) for layer in zip(*(model.convs for model in models), strict=True)]
        first = self._convs[0]
        weights = torch.cat([conv.get_parameter("weight") for conv in first])
        self._first = weights.contiguous(memory_format=torch.channels_last), _joined(first, "bias")
        norms = zip(*(model.norms for model in models), strict=True)
        self._norms = [(_joined(layer, "weight"), _joined(layer, "bias")) for layer in norms]
        self._sizes = [[len(conv.get_parameter("bias")) for conv in layer] for layer in self._convs]
        heads = [model.head for model in models]
        self._head = torch.block_diag(*(head.get_parameter("weight") for head in heads)), _joined(heads, "bias")

    def features(self, x: Tensor) -> Tensor:
        """The models' features of images `(B, ch, H, W)`, one behind the other."""
        maps = F.conv2d(x, *self._first, padding=1)
        for layer, (weight, bias) in enumerate(self._norms):
            if layer > 0:
                own = maps.split(self._sizes[layer - 1], dim=1)
                maps = torch.cat([conv(x) for conv, x in zip(self._convs[layer], own, strict=True)], dim=1)
            maps = F.relu(normalised_and_pooled(maps, weight, bias, EPS), inplace=True)
        return maps.mean(dim=(2, 3))

    def head(self, features: Tensor) -> Tensor:
        """The models' logits of their features."""
        return F.linear(features, *self._head)

    def __call__(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


def _joined(parts: Sequence[torch.nn.Module], name: str) -> Tensor:
    return torch.cat([part.get_parameter(name) for part in parts])
