"""Generators of features to be looked at (`Method.painters`): never the modules that training uses."""

from __future__ import annotations

import torch
from torch import Tensor

from search_spaces.kept_images import FEATURES
from trainables.building_blocks.generator_aggregation import HasNoise
from trainables.building_blocks.split_model import body_module, feature_generator
from trainables.federation import Federation
from trainables.method import Painter
from trainables.params import on, put
from trainables.wire import Params


def painters(
    config: HasNoise,
    fed: Federation,
    generator: Params,
    body: Params,
    hidden: tuple[int, ...] = (512, 256),
    model: str = "",
) -> dict[str, Painter]:
    """A generator with these weights and hidden layers, and the extractor (`body_of` of a model, which is the
    federation's unless it is named) that it imitates."""
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
