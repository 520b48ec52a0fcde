"""HeteroFL: static extraction of width-scaled sub-models.

Diao, Ding, Tarokh: HeteroFL: Computation and Communication Efficient Federated Learning for Heterogeneous
Clients, ICLR 2021.

    K_i,t     the first k = ⌈R_i n⌉ channels of every layer
    client    θ_i ← θ[K_i,t];  I_c times:  θ_i ← θ_i - η ∇ CE(f(x; θ_i), y)      outputs of convolutions times 1/R_i
    server    θ[l,k] ← Σ_(i: k ∈ K_i,t) p_i θ_i[l,k] / Σ_(i: k ∈ K_i,t) p_i   DFRD Eq. (1); kept where no client held it

    R_i   width budget (1/2)^min(σ, ⌊ρ i/N⌋)      p_i   n_i (agg_weight = samples) or 1
    n     channels of the layer                    t     round, from 1

Differs from the paper: entries are weighted by n_i (the code weighs all holders alike: agg_weight = uniform); the
masked cross-entropy is off unless asked for; of its static batch normalisation only the half in training is here,
statistics of the batch and none that are tracked. For evaluation the paper's server asks the clients, one after another
and once training is done, for the global model's statistics on their data; here the statistics of the test batch serve.
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
    """K_i,t: the first k of each group's n channels, in every round the same."""

    def first(group: str, n: int, k: int) -> Tensor:
        return torch.arange(k)

    return choose(fed, client, first)


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
    name="heterofl",
    title="HeteroFL",
    reference="Diao et al., ICLR 2021",
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
