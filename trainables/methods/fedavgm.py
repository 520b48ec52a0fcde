"""FedAvgM: federated averaging with momentum on the server.

Hsu, Qi, Brown: Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification, 2019.

    client   w_i ← w;  I_c times:  w_i ← w_i - η ∇ CE(f(x; w_i), y)
    server   Δ ← w - w̄,   w̄ = Σ_i n_i w_i / Σ_i n_i          over the round's clients
             v ← β v + Δ
             w ← w - η_s v

    β   server_momentum      η_s   server_lr      v   velocity, 0 before round 1      η   lr      I_c   local_steps

Differs from the paper: it has a rate η_s, as in Reddi et al., Adaptive Federated Optimization (1 is the paper's); the
momentum is the plain one of the paper's equations. Running statistics are averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from search_spaces.parameter import real
from trainables.building_blocks.server_optimiser import by_size, towards, weights
from trainables.federation import Federation
from trainables.local import LocalTraining
from trainables.method import Limit, Method
from trainables.methods import fedavg
from trainables.rng import Rng
from trainables.wire import Params, Upload


@dataclass(frozen=True)
class Config(LocalTraining):
    """Local training and the server's step."""

    server_momentum: float = real(
        0.9,
        low=0.0,
        high=0.999,
        symbol="β",
        doc="Momentum of the server.",
        source="Hsu et al. Sec. 4.3",
        tune=(0.0, 0.99),
    )
    server_lr: float = real(
        1.0,
        low=1e-6,
        high=100.0,
        log=True,
        symbol="η_s",
        doc="Learning rate of the server; 1 replaces the model by the average where there is no momentum.",
        source="Reddi et al. Alg. 1",
        tune=(0.01, 3.0),
    )


@dataclass(frozen=True)
class State:
    """The global model `w` and the velocity `v` of its weights."""

    model: Params
    velocity: Params


def init(config: Config, fed: Federation, rng: Rng) -> State:
    """FedAvg's initial model and no velocity."""
    model = fed.initial_params()
    return State(model, {name: torch.zeros_like(model[name]) for name in weights(model)})


def server(config: Config, fed: Federation, state: State, uploads: Sequence[Upload], rng: Rng) -> State:
    """One step of momentum towards the clients' average."""
    mean, rate = by_size(fed, uploads), config.server_lr
    carried = {name: config.server_momentum * v for name, v in state.velocity.items()}
    plain = towards(state.model, mean, rate)
    # w - η_s v = w + η_s (w̄ - w) - η_s β v_old: written this way β = 0 with η_s = 1 is FedAvg bit for bit.
    return State(
        plain | {name: plain[name] - rate * c for name, c in carried.items()},
        {name: c + (state.model[name] - mean[name]) for name, c in carried.items()},
    )


METHOD = Method(
    name="fedavgm",
    title="FedAvgM",
    reference="Hsu et al., 2019",
    family="one global model",
    Config=Config,
    State=State,
    init=init,
    download=fedavg.download,
    job=fedavg.job,
    server=server,
    one_pass=True,
    limits=(Limit({"server_momentum": 0.0, "server_lr": 1.0}, equals="fedavg"),),
)
