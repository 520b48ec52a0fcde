"""Models by name. A model is one file of this package that assigns `MODELS: dict[name, constructor]`; no list is
edited.

    model = build("cnn", (3, 32, 32), classes=10, rate=0.25)
    initialise(model, rng.torch("init"))

A constructor takes `(shape, classes, rate, scaler)` and returns a `Model` (see `base`).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache

import torch

from search_spaces.errors import UserError, unknown
from trainables.models.base import Axis, Model, Shape, initialise, width
from trainables.models.layers import BATCH_NORMS, BatchNorm, is_statistic

__all__ = [
    "BATCH_NORMS",
    "Axis",
    "Model",
    "Shape",
    "build",
    "has_batch_norm",
    "initialise",
    "is_statistic",
    "names",
    "width",
]


@cache
def _constructors() -> dict[str, Callable[..., Model]]:
    found: dict[str, Callable[..., Model]] = {}
    for info in sorted(pkgutil.iter_modules(__path__), key=lambda i: i.name):
        module = importlib.import_module(f"{__name__}.{info.name}")
        found.update(getattr(module, "MODELS", {}))
    return found


def names() -> list[str]:
    """The registered models, sorted."""
    return sorted(_constructors())


def build(
    name: str, shape: Shape, classes: int, rate: float = 1.0, scaler: bool = False, batch_norm: str = "batch"
) -> Model:
    """The model `name` for images of `shape` (channels, height, width), every group of n channels cut to ceil(rate·n).

    With batch_norm `running` its batch normalisation keeps running statistics, which are buffers of the model: what is
    taken from it, sent and averaged includes them. The weights are those of a fixed seed (use `initialise` to draw
    others); the global generator is left as it was. Raises `UserError` for an unknown name or a rate outside (0, 1]."""
    if name not in _constructors():
        raise UserError(unknown("model", name, names()))
    with torch.random.fork_rng(devices=[]):
        model = _constructors()[name](shape, classes, rate, scaler)
    model.name = name
    if batch_norm == "running":
        model.keep_statistics()
    model.axes = {key: model.axes[key] for key in model.state_dict()}
    initialise(model, torch.Generator().manual_seed(0))
    return model


@cache
def has_batch_norm(name: str) -> bool:
    """Whether the model `name` has batch normalisation."""
    return any(isinstance(part, BatchNorm) for part in build(name, (1, 32, 32), 2, rate=1 / 16).modules())
