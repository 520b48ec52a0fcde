"""Several narrow models as one wider one, whose layers hold theirs as blocks on the diagonal.

    laid(one, models);   one(x)  =  [f_1(x), …, f_S(x)]   logits (B, S·C),   one.features(x) likewise (B, S·p)

A layer of a few channels leaves most of a core idle, and is over before it has been told what to do. So S models of
width R are faster as one of width S·R, though most of what that multiplies is zero. Model i has the i-th share of every
group of channels, so each of its channels meets its own alone; the image is everybody's.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from trainables import models
from trainables.models.base import Model, width


def fit(one: Model, count: int) -> bool:
    """Whether there is a model that holds `count` models like `one`: its architecture keeps channels apart, and
    `count` times its channels are those of some width of it."""
    rate = one.rate * count
    return (
        one.separable
        and rate <= 1
        and all(width(size, rate) == count * width(size, one.rate) for size in one.group_sizes.values())
    )


def wide(one: Model, count: int) -> Model:
    """A model of zeros to hold `count` models like `one`, which `fit`."""
    kept = "running" if one.keeps_statistics else "batch"
    made = models.build(one.name, one.shape, count * one.classes, one.rate * count, batch_norm=kept)
    made.factor = one.factor
    for tensor in made.state_dict().values():
        tensor.zero_()
    return made


@torch.no_grad()
def lay(made: Model, parts: Sequence[Model]) -> None:
    """Copies the weights of `parts` into a model that `wide` made for so many of them."""
    own = made.state_dict()
    for place, part in enumerate(parts):
        for name, tensor in part.state_dict().items():
            block = own[name]
            for at, size in enumerate(tensor.shape):
                if _shared(part, name, at):
                    block = block.narrow(at, place * size, size)
            block.copy_(tensor)


def _shared(model: Model, name: str, at: int) -> bool:
    """Whether each model has a share of its own of that dimension of the tensor: channels and classes, not the
    channels of the image or the places of a kernel."""
    return at == 0 or model.axes[name][at] is not None
