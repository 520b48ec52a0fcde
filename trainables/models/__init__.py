"""Models by name. A model is one file of this package that assigns `MODELS: dict[name, constructor]`; no list is
edited.

    model = build("cnn", (3, 32, 32), classes=10, rate=0.25)
    initialise(model, rng.torch("init"))

A constructor takes `(shape, classes, rate, scaler)` and returns a `Model` (see `base`). A model of a user's own is a
class of a Python file, `mynet.py:Net`, or an entry point of the group `fedtune.models` (see `own`).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch

from search_spaces import plugins
from search_spaces.errors import UserError, unknown
from trainables import own_code
from trainables.models.base import Axis, Model, Shape, initialise, width
from trainables.models.layers import BATCH_NORMS, BatchNorm, is_statistic

__all__ = [
    "BATCH_NORMS",
    "SMALL",
    "Axis",
    "Model",
    "Shape",
    "build",
    "facts_of",
    "has_batch_norm",
    "initialise",
    "is_own",
    "is_statistic",
    "named",
    "names",
    "own_code_of",
    "own_file",
    "reads_tokens",
    "width",
]

#: The small network for each kind of samples that are no images.
SMALL = {"vectors": "mlp", "tokens": "lstm"}


@cache
def _constructors() -> dict[str, Callable[..., Model]]:
    found: dict[str, Callable[..., Model]] = {}
    for info in sorted(pkgutil.iter_modules(__path__), key=lambda i: i.name):
        module = importlib.import_module(f"{__name__}.{info.name}")
        found.update(getattr(module, "MODELS", {}))
    return found


def names() -> list[str]:
    """The registered models, and those of plug-ins, sorted."""
    return sorted({**plugins.plugins(plugins.MODELS), **_constructors()})


def is_own(name: str) -> bool:
    """Whether the model is a user's own: of a file or of a plug-in."""
    return name not in _constructors() and (own_code.split(name) is not None or name in plugins.plugins(plugins.MODELS))


def named(name: str) -> str:
    """What a user gave as a model, as it is recorded: of `mynet.py:Net` the whole path. Raises `UserError` where there
    is no such file."""
    found = own_code.split(name)
    if found is None:
        return name
    path = own_code.named(found[0], "model")
    return f"{path}:{found[1]}" if found[1] else str(path)


def own_code_of(name: object) -> own_code.Code | None:
    """The file of a model of a user's own; None of another one. Raises `UserError` where it cannot be run."""
    found = own_code.split(name) if isinstance(name, str) and is_own(name) else None
    return None if found is None else own_code.code_of(found[0])


def facts_of(name: object) -> dict[str, str] | None:
    """What a run records of a model of a user's own: its file's name, or the package of a plug-in, and the content's
    hash. None of another one."""
    if not isinstance(name, str) or not is_own(name):
        return None
    code = own_code_of(name)
    return plugins.facts(plugins.plugins(plugins.MODELS)[name]) if code is None else code.facts()


def own_file(name: object) -> dict[str, str] | None:
    """What a run records of a model of a user's own: its name, and `facts_of` it. None of another one."""
    facts = facts_of(name)
    return None if facts is None else {"model": str(name), **facts}


def reads_tokens(name: str) -> bool:
    """Whether the model `name` is one for sequences of tokens alone."""
    return bool(getattr(_constructors().get(name), "reads_tokens", False))


def _own(name: str, shape: Shape, classes: int, rate: float, vocabulary: int) -> Model:
    from trainables.models.own import OwnModel, class_of

    plug_in = plugins.plugins(plugins.MODELS).get(name)
    make = plugins.load(plug_in) if plug_in is not None else class_of(name)
    return OwnModel(make, Path(name).name, shape, classes, rate, vocabulary)


def build(
    name: str,
    shape: Shape,
    classes: int,
    rate: float = 1.0,
    scaler: bool = False,
    batch_norm: str = "batch",
    vocabulary: int = 0,
) -> Model:
    """The model `name` for samples of `shape` (channels, height, width), every group of n channels cut to ceil(rate·n);
    above 0, the samples are sequences of tokens below `vocabulary`.

    With batch_norm `running` its batch normalisation keeps running statistics, which are buffers of the model: what is
    taken from it, sent and averaged includes them. The weights are those of a fixed seed (use `initialise` to draw
    others); the global generator is left as it was. Raises `UserError` for an unknown name or a rate outside (0, 1]."""
    with torch.random.fork_rng(devices=[]):
        if is_own(name):
            model = _own(name, shape, classes, rate, vocabulary)
        elif reads_tokens(name):
            model = _constructors()[name](shape, classes, rate, scaler, vocabulary)
        elif name in _constructors():
            model = _constructors()[name](shape, classes, rate, scaler)
        else:
            raise UserError(unknown("model", name, names()))
    model.name = name
    if batch_norm == "running":
        model.keep_statistics()
    model.axes = {key: model.axes[key] for key in model.state_dict()}
    initialise(model, torch.Generator().manual_seed(0))
    return model


@cache
def has_batch_norm(name: str) -> bool:
    """Whether the model `name` has batch normalisation; of a user's own it may."""
    if is_own(name):
        return True
    return any(isinstance(part, BatchNorm) for part in build(name, (1, 32, 32), 2, rate=1 / 16).modules())
