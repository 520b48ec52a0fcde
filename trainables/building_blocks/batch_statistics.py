"""Statistics of what enters a model's normalisation layers: mean and variance per channel over the batch and all
positions.

Models keep no running statistics unless they are asked to (`batch_norm: running`), so code that needs statistics
watches what enters the layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from trainables.models.base import Model
from trainables.models.layers import BatchNorm
from trainables.wire import Params

#: `(layer, mean (C,), var (C,))`
Watcher = Callable[[str, Tensor, Tensor], None]


def layers(module: nn.Module) -> list[str]:
    """Names of the normalisation layers, in the order of `modules()`."""
    return [name for name, part in module.named_modules() if isinstance(part, BatchNorm)]


@contextmanager
def watching(module: Model, watcher: Watcher) -> Iterator[None]:
    """Within, every forward pass tells `watcher` each layer's statistics; they carry the pass's gradient.

    The scaler multiplies what enters a layer, as a rule while a client trains; it is divided out, so that a client's
    statistics and those of its model in evaluation are in one unit. Variances are of the population (divided by the
    count)."""

    def look(name: str, part: nn.Module, inputs: tuple[Any, ...]) -> None:
        factor = module.scale
        (x,) = inputs
        var, mean = torch.var_mean(x.float(), dim=(0, 2, 3), correction=0)
        watcher(name, mean / factor, var / factor**2)

    hooks = [module.get_submodule(name).register_forward_pre_hook(partial(look, name)) for name in layers(module)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def tracking(module: Model, momentum: float) -> Iterator[Params]:
    """Within, the yielded `<layer>.mean` and `<layer>.var` follow the batches: `s ← m s + (1 - m) batch`, from the
    first batch on."""
    tracked: Params = {}

    def follow(name: str, mean: Tensor, var: Tensor) -> None:
        for key, value in ((f"{name}.mean", mean.detach()), (f"{name}.var", var.detach())):
            tracked[key] = momentum * tracked[key] + (1 - momentum) * value if key in tracked else value

    with watching(module, follow):
        yield tracked
