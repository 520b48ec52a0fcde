"""A loss whose gradient has something added that is known already: SCAFFOLD's correction, Per-FedAvg's direction.

    added(L, w, a) = L,      ∂ added / ∂w = ∂L/∂w + a

A linear term `⟨w, a⟩ - sg⟨w, a⟩` says the same, and costs two more passes over all weights in every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def added(loss: Tensor, parameters: Sequence[Tensor], gradient: Sequence[Tensor]) -> Tensor:
    """`loss` (a scalar), to whose gradient in each of `parameters` the tensor of `gradient` at its place is added."""
    if len(parameters) != len(gradient):
        raise ValueError(f"{len(parameters)} parameters and {len(gradient)} gradients")
    value: Tensor = _Added.apply(loss, *parameters, *gradient)
    return value


class _Added(torch.autograd.Function):
    # What `vmap` does to it follows from what is written here.
    generate_vmap_rule = True

    @staticmethod
    def forward(loss: Tensor, *tensors: Tensor) -> Tensor:
        return loss.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[1 + len(inputs) // 2 :])

    @staticmethod
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor | None, ...]:
        gradient = ctx.saved_tensors
        return incoming, *(incoming * a for a in gradient), *(None for _ in gradient)
