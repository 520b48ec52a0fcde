"""The server's side of federated optimisation: a round's average taken as a gradient, and steps of an optimiser on it.

Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan: Adaptive Federated Optimization, ICLR 2021, Algorithm 2.

    w̄ = Σ_i n_i w_i / Σ_i n_i            over the round's clients
    Δ = w̄ - w                            the pseudo-gradient, of opposite sign
    m ← β₁ m + (1 - β₁) Δ,               m = 0 before round 1
    v ← second(v, Δ²),                   v = τ² before round 1
    w ← w + η m / (√v + τ)

A method gives `second`: FedAdam a moving average, FedYogi one that changes by no more than Δ². Running statistics of
batch normalisation have no gradient: they are averaged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from search_spaces.parameter import real
from trainables.federation import Federation
from trainables.local import LocalTraining
from trainables.models import is_statistic
from trainables.params import average, unpack
from trainables.rng import Rng
from trainables.wire import Params, Upload

#: `(β₂, v, Δ²) -> v`, entry by entry.
Second = Callable[[float, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class AdaptiveServer(LocalTraining):
    """Local training, and the server's adaptive step."""

    server_lr: float = real(
        0.01,
        low=1e-6,
        high=100.0,
        log=True,
        symbol="η_s",
        doc="Learning rate of the server.",
        source="Reddi et al. Alg. 2",
        tune=(1e-3, 1.0),
    )
    beta1: float = real(
        0.9,
        low=0.0,
        high=0.999,
        symbol="β₁",
        doc="Decay of the server's first moment.",
        source="Reddi et al. Sec. 5",
        tune=(0.0, 0.95),
    )
    beta2: float = real(
        0.99,
        low=0.0,
        high=1.0,
        symbol="β₂",
        doc="Decay of the server's second moment; 1 leaves it at τ².",
        source="Reddi et al. Sec. 5",
    )
    tau: float = real(
        1e-3,
        low=1e-8,
        high=10.0,
        log=True,
        symbol="τ",
        doc="Degree of adaptivity: small follows the second moment, large is a plain step.",
        source="Reddi et al. Sec. 5",
        tune=(1e-5, 0.1),
    )


@dataclass(frozen=True)
class AdaptiveState:
    """The global model `w` and the moments `m` and `v` of its weights."""

    model: Params
    first: Params
    second: Params


def weights(model: Params) -> list[str]:
    """Names of the tensors that a gradient moves: no running statistics, no counts."""
    return [name for name, tensor in model.items() if tensor.is_floating_point() and not is_statistic(name)]


def by_size(fed: Federation, uploads: Sequence[Upload]) -> Params:
    """`w̄`, the average of the uploaded models weighted by client sizes."""
    return average((unpack("model", u.payload), fed.sizes[u.client]) for u in uploads)


def towards(old: Params, mean: Params, rate: float) -> Params:
    """`w + rate (w̄ - w)` of the weights, and the mean of all else; with rate 1 it is `mean` to the bit."""
    moved = weights(old)
    return {name: (1 - rate) * old[name] + rate * tensor if name in moved else tensor for name, tensor in mean.items()}


def adaptive_init(config: AdaptiveServer, fed: Federation, rng: Rng) -> AdaptiveState:
    """FedAvg's initial model, m = 0 and v = τ²."""
    model = fed.initial_params()
    own = weights(model)
    start = float(np.float32(config.tau**2))  # the same number in every precision
    return AdaptiveState(
        model,
        {name: torch.zeros_like(model[name]) for name in own},
        {name: torch.full_like(model[name], start) for name in own},
    )


def adaptive_server(second: Second) -> Callable[[Any, Federation, AdaptiveState, Sequence[Upload], Rng], AdaptiveState]:
    """The `server` of a method with this rule for v."""

    def server(
        config: AdaptiveServer, fed: Federation, state: AdaptiveState, uploads: Sequence[Upload], rng: Rng
    ) -> AdaptiveState:
        mean = by_size(fed, uploads)
        delta = {name: mean[name] - state.model[name] for name in state.first}
        m = {name: config.beta1 * state.first[name] + (1 - config.beta1) * d for name, d in delta.items()}
        v = {name: second(config.beta2, state.second[name], d.square()) for name, d in delta.items()}
        stepped = {
            name: state.model[name] + config.server_lr * m[name] / (v[name].sqrt() + config.tau) for name in delta
        }
        return AdaptiveState(mean | stepped, m, v)

    return server
