"""Optimiser state that outlives a round, as named tensors: taken from an optimiser, kept in a client's state, put
back."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn


def take_state(optimiser: torch.optim.Optimizer, module: nn.Module) -> dict[str, Tensor]:
    """A copy of the optimiser's tensors for `module`'s parameters, as `parameter/quantity` (Adam: step, exp_avg,
    exp_avg_sq).

    Empty before the first step."""
    return {
        f"{name}/{quantity}": value.clone()
        for name, parameter in module.named_parameters()
        for quantity, value in optimiser.state.get(parameter, {}).items()
    }


def put_state(optimiser: torch.optim.Optimizer, module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Continues from a state that `take_state` returned for the same kind of optimiser; an empty one is a fresh
    start."""
    for name, parameter in module.named_parameters():
        own = {
            key.removeprefix(f"{name}/"): value.clone()
            for key, value in state.items()
            if key.rpartition("/")[0] == name
        }
        if own:
            optimiser.state[parameter] = own
