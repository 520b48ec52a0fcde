"""FedRolex: rolling extraction of width-scaled sub-models.

Alam, Liu, Yan, Zhang: FedRolex: Model-Heterogeneous Federated Learning with Rolling Sub-Model Extraction,
NeurIPS 2022.

    K_i,t     k = ⌈R_i n⌉ consecutive channels of every layer from offset t-1 (roll = forward) or 1-t (backward),
              wrapping around
    client    θ_i ← θ[K_i,t];  I_c times:  θ_i ← θ_i - η ∇ CE(f(x; θ_i), y)      outputs of convolutions times 1/R_i
    server    θ[l,k] ← Σ_(i: k ∈ K_i,t) p_i θ_i[l,k] / Σ_(i: k ∈ K_i,t) p_i   DFRD Eq. (1); kept where no client held it

    R_i   width budget (1/2)^min(σ, ⌊ρ i/N⌋)      p_i   n_i (agg_weight = samples) or 1
    n     channels of the layer                    t     round, from 1

Differs from the paper: no overlap option and no periodic shuffling of channels; models are evaluated with the
statistics of the batch, as said of HeteroFL. The window moves forward as in the paper, while its code moves it backward
(roll). For clients of one width the two are the same up to the names of channels. For unequal widths they are not: all
windows of a round begin at one channel, which forward leaves every window in the next round, and backward stays in all
that are wider than one channel. As a base of DFRD, FedFTG and DENSE the window moves forward.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from search_spaces.parameter import choice
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
    """The direction of the window, on top of what every width-based method has."""

    roll: str = choice(
        "forward",
        ("forward", "backward"),
        doc="Where the window of channels moves from round to round: the paper's direction, or its code's.",
        source="FedRolex Sec. 3; FedRolex code",
    )


def channels(fed: Federation, round_: int, client: int, roll: str = "forward") -> Channels:
    """K_i,t: k consecutive ones of each group's n channels. The window starts at t-1 (backward: at 1-t) in round
    t = 1, 2, … and wraps around."""
    offset = round_ - 1 if roll == "forward" else 1 - round_

    def rolling(group: str, n: int, k: int) -> Tensor:
        return (torch.arange(k) + offset) % n

    return choose(fed, client, rolling)


def download(config: Config, fed: Federation, state: State, client: int) -> Payload:
    """θ[K_i,t]: the client's sub-model of the coming round."""
    return pack("model", extract(fed, state.model, channels(fed, state.round + 1, client, config.roll)))


def job(config: Config, fed: Federation, payload: Payload, client_state: None, data: ClientData, rng: Rng) -> LocalJob:
    """Trains the received sub-model and returns it."""
    return submodel_job(config, fed, unpack("model", payload), data, returned(config, data))


client = client_of(job)


def server(config: Config, fed: Federation, state: State, uploads: Sequence[Upload], rng: Rng) -> State:
    """Averages every entry of θ over the clients that held it."""
    now = state.round + 1
    held = [channels(fed, now, u.client, config.roll) for u in uploads]
    return State(now, aggregate(config, fed, state.model, uploads, held))


METHOD = Method(
    name="fedrolex",
    title="FedRolex",
    reference="Alam et al., NeurIPS 2022",
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
