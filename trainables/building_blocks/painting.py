"""Generators to be looked at (`Method.painters`), of images and of features: never the modules that training uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor, nn

from search_spaces.kept_images import FEATURES
from trainables.building_blocks.distillation_bases import State
from trainables.building_blocks.generator_aggregation import HasNoise
from trainables.building_blocks.server_distillation import ServerDistillation, generator_module, to_models
from trainables.building_blocks.split_model import body_module, feature_generator
from trainables.federation import Federation
from trainables.generators import Generator
from trainables.method import Painter
from trainables.params import on, put
from trainables.wire import Params


def painters(
    config: ServerDistillation, fed: Federation, generators: Mapping[str, Params], judge: nn.Module, model: Params
) -> dict[str, Painter]:
    """These generators of images by name. `judge`, a module that training does not use, takes the weights `model` of
    the global model: it says what a generator without labels (merge_op = none) has painted."""
    found = {}
    for name, weights in generators.items():
        module = generator_module(config, fed, f"{name} to look at").eval()
        put(module, on(fed.device, weights))
        told = judged_by(judge, on(fed.device, model)) if config.merge_op == "none" else None
        found[name] = Painter(config.noise_dim, partial(_paint, config, fed, module), told)
    return found


def of_state(
    config: ServerDistillation, fed: Federation, state: State, clients: Mapping[int, object]
) -> dict[str, Painter]:
    """`Method.painters` of a method whose state is that of `distillation_bases`."""
    return painters(config, fed, {"generator": state.generator}, fed.network(role="judge"), state.model)


def _paint(config: ServerDistillation, fed: Federation, module: Generator, z: Tensor, y: Tensor) -> Tensor:
    return to_models(config, fed, module(module.merge(z, y)))


def judged_by(module: nn.Module, model: Params) -> Callable[[Tensor], Tensor]:
    """Images `(B, ch, H, W)` as models are fed them to the classes `(B,)` that `module` with the weights `model`
    predicts."""
    put(module, model)
    module.eval()

    def judge(images: Tensor) -> Tensor:
        predicted: Tensor = module(images).argmax(dim=1)
        return predicted

    return torch.no_grad()(judge)


def feature_painters(
    config: HasNoise,
    fed: Federation,
    generator: Params,
    body: Params,
    hidden: tuple[int, ...] = (512, 256),
    model: str = "",
) -> dict[str, Painter]:
    """A generator of features with these weights and hidden layers, and the extractor (`body_of` of a model, which is
    the federation's unless it is named) that it imitates."""
    making = feature_generator(fed, "to look at", config.noise_dim, hidden).eval()
    seeing = body_module(fed, "to look at", model).eval()
    put(making, on(fed.device, generator))
    put(seeing, on(fed.device, body))

    def paint(z: Tensor, y: Tensor) -> Tensor:
        # Φ(z) of a standard normal z is uniform on [0, 1), the other distribution that noise may have.
        made: Tensor = making(z if config.noise == "normal" else torch.special.ndtr(z), y)
        return made

    def observe(images: Tensor) -> Tensor:
        seen: Tensor = seeing(images)
        return seen

    return {FEATURES: Painter(config.noise_dim, paint, observe=observe)}
