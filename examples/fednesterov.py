"""FedNesterov: federated averaging with Nesterov's momentum on the server.

FedAvgM (Hsu, Qi, Brown: Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification,
2019) with the step of Nesterov's accelerated gradient; the example of docs/add-a-method.md.

    server   Δ = w - w̄,   w̄ = Σ_i n_i w_i / Σ_i n_i
             v ← β v + Δ
             w ← w - (Δ + β v)

    β   server_momentum      v   velocity, 0 before round 1

Differs from the paper: nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from search_spaces.parameter import real
from trainables.federation import Federation
from trainables.local import LocalTraining
from trainables.method import Limit, Method, Params, Upload
from trainables.methods import fedavg
from trainables.params import average, unpack
from trainables.rng import Rng


@dataclass(frozen=True)
class Config(LocalTraining):
    """Local training and the server's momentum."""

    server_momentum: float = real(
        0.9, low=0.0, high=0.999, symbol="β", doc="Momentum of the server.", source="Sec. 4.3", tune=(0.0, 0.99)
    )


@dataclass(frozen=True)
class State:
    """The server's global model `w` and its velocity `v`."""

    model: Params
    velocity: Params


def init(config: Config, fed: Federation, rng: Rng) -> State:
    """FedAvg's initial model and no velocity."""
    model = fed.initial_params()
    return State(model, {name: torch.zeros_like(tensor) for name, tensor in model.items()})


def server(config: Config, fed: Federation, state: State, uploads: Sequence[Upload], rng: Rng) -> State:
    """One step to the clients' average, and beyond it where the velocity points."""
    mean, beta = average((unpack("model", u.payload), fed.sizes[u.client]) for u in uploads), config.server_momentum
    velocity = {name: beta * v + (state.model[name] - mean[name]) for name, v in state.velocity.items()}
    # w - (Δ + β v) = w̄ - β v: written this way β = 0 is FedAvg bit for bit.
    return State({name: mean[name] - beta * velocity[name] for name in mean}, velocity)


METHOD = Method(
    name="fednesterov",
    title="FedNesterov",
    reference="Hsu et al., 2019",
    family="one global model",
    Config=Config,
    State=State,
    init=init,
    download=fedavg.download,
    job=fedavg.job,
    server=server,
    one_pass=True,
    limits=(Limit({"server_momentum": 0.0}, equals="fedavg"),),
)
