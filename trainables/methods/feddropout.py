"""Federated Dropout: random extraction of width-scaled sub-models.

Caldas, Konečný, McMahan, Talwalkar: Expanding the Reach of Federated Learning by Reducing Client Resource
Requirements, 2018.

    K_i,t     k = ⌈R_i n⌉ channels of every layer, drawn anew for each client and round
    client    θ_i ← θ[K_i,t];  I_c times:  θ_i ← θ_i - η ∇ CE(f(x; θ_i), y)      outputs of convolutions times 1/R_i
    server    θ[l,k] ← Σ_(i: k ∈ K_i,t) p_i θ_i[l,k] / Σ_(i: k ∈ K_i,t) p_i   DFRD Eq. (1); kept where no client held it

    R_i   width budget (1/2)^min(σ, ⌊ρ i/N⌋)      p_i   n_i (agg_weight = samples) or 1
    n     channels of the layer                    t     round, from 1

Differs from the paper: the sub-model's width is the client's own budget, as in DFRD's experiments, not one common rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trainables.building_blocks.partial_training import (
    PartialTraining,
    State,
    aggregate,
    global_model,
    init,
    returned,
    submodel_job,
)
from trainables.building_blocks.submodels import Channels, choose, extract
from trainables.federation import ClientData, Federation
from trainables.local import LocalJob, client_of
from trainables.method import Limit, Method
from trainables.params import pack, unpack
from trainables.rng import Rng
from trainables.wire import Payload, Upload


@dataclass(frozen=True)
class Config(PartialTraining):
    """As for every width-based method."""


def channels(fed: Federation, round_: int, client: int) -> Channels:
    """K_i,t: k of each group's n channels, drawn anew for each client and round t = 1, 2, …"""

    def random(group: str, n: int, k: int) -> Tensor:
        generator = fed.rng.torch("submodel", "round", round_, "client", client, group)
        return torch.randperm(n, generator=generator)[:k].sort().values

    return choose(fed, client, random)


def download(config: Config, fed: Federation, state: State, client: int) -> Payload:
    """θ[K_i,t]: the client's sub-model of the coming round."""
    return pack("model", extract(fed, state.model, channels(fed, state.round + 1, client)))


def job(config: Config, fed: Federation, payload: Payload, client_state: None, data: ClientData, rng: Rng) -> LocalJob:
    """Trains the received sub-model and returns it."""
    return submodel_job(config, fed, unpack("model", payload), data, returned(config, data))


client = client_of(job)


def server(config: Config, fed: Federation, state: State, uploads: Sequence[Upload], rng: Rng) -> State:
    """Averages every entry of θ over the clients that held it."""
    now = state.round + 1
    return State(now, aggregate(config, fed, state.model, uploads, [channels(fed, now, u.client) for u in uploads]))


METHOD = Method(
    name="feddropout",
    title="Federated Dropout",
    reference="Caldas et al., 2018",
    family="partial training",
    Config=Config,
    State=State,
    init=init,
    download=download,
    client=client,
    job=job,
    server=server,
    global_model=global_model,
    widths="any",
    limits=(Limit({"rho": 0}, equals="fedavg"),),
)
