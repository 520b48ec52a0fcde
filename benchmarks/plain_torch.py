"""Plain PyTorch: what makes fedtune's models and optimisers fast is taken away below it, so that whole rounds of
methods too long to write a second time have something to be measured against. Equations, draws and results stay (the
benchmark compares them).

    channels last             contiguous tensors everywhere
    pooling, then ReLU        ReLU on the whole map, then pooling
    fused SGD and Adam        the default ones
    a scaler before BatchNorm maps times that number, then normalised
    frozen teachers           gradients of their weights are gathered, as where nobody froze them
    `trainables.kernels`      PyTorch's own operations, which are the kernels' references
    teachers side by side     one after the other, and for one step at a time

Must be called before anything of `trainables` is imported.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def apply() -> None:
    """Changes this process for good."""
    assert not any(name.startswith("trainables") for name in sys.modules), "too late: the engine has been imported"
    layout, torch.channels_last = torch.channels_last, torch.contiguous_format
    for name in ("uniform_", "normal_"):
        setattr(Tensor, name, _drawn_in(layout, getattr(Tensor, name)))
    pool, relu, freeze = F.max_pool2d, F.relu, nn.Module.requires_grad_

    def relu_then_pool(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        pooled = pool(relu(x), *args, **kwargs)
        pooled.rectified = True  # type: ignore[attr-defined]
        return pooled

    def relu_once(x: Tensor, inplace: bool = False) -> Tensor:
        return x if getattr(x, "rectified", False) else relu(x, inplace=inplace)

    F.max_pool2d, F.relu = relu_then_pool, relu_once  # type: ignore[assignment]
    nn.Module.requires_grad_ = lambda self, requires_grad=True: freeze(self, True) if requires_grad else self  # type: ignore[method-assign]
    for optimiser in (torch.optim.SGD, torch.optim.Adam):
        optimiser.__init__ = _unfused(optimiser.__init__)  # type: ignore[method-assign, misc]
    _without_kernels()


def _without_kernels() -> None:
    """The references in place of the kernels, before a model or a method takes them by name."""
    from trainables.kernels import convolution, distances, pooling, upsampling

    convolution.Convolution.forward = nn.Conv2d.forward  # type: ignore[method-assign]
    upsampling.Upsampling.forward = nn.ConvTranspose2d.forward  # type: ignore[method-assign]
    upsampling.Enlarging.forward = lambda self, x: upsampling.plain_enlarging(x, self.weight, self.bias)  # type: ignore[method-assign]
    distances.mean_squares = distances.plain
    pooling.max_pool, pooling.padded = pooling.plain_max_pool, F.pad
    from trainables.kernels import normalisation  # only now: it pools with what `pooling` has

    for name in ("normalised", "normalised_by"):
        setattr(normalisation, f"{name}_and_pooled", _then_pooled(getattr(normalisation, name), pooling.max_pool))
    from trainables.building_blocks import generator_aggregation, teachers
    from trainables.models import abreast
    from trainables.models.layers import BatchNorm

    normalise = BatchNorm.forward
    BatchNorm.forward = lambda self, x, pool=False, scaler=1.0: normalise(self, x * scaler if scaler != 1 else x, pool)  # type: ignore[method-assign]
    teachers.WIDEST = 0.0
    abreast.LARGEST = 0
    generator_aggregation.AT_ONCE = 1
    generator_aggregation.beside = generator_aggregation.one_by_one


def _then_pooled(compute: Callable[..., Tensor], pool: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    return lambda *args: pool(compute(*args))


def _drawn_in(layout: torch.memory_format, draw: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """First weights are drawn in the order of memory; drawn as if channels came last, they are those of the engine."""

    @functools.wraps(draw)
    def drawn(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return (
            self.copy_(draw(torch.empty_like(self, memory_format=layout), *args, **kwargs))
            if self.dim() == 4
            else draw(self, *args, **kwargs)
        )

    return drawn


def _unfused(start: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(start)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        kwargs.pop("fused", None)
        start(self, *args, **kwargs)

    return init
