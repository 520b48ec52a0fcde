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

import torch
from torch import Tensor

from trainables.building_blocks.partial_training import partial_training
from trainables.building_blocks.submodels import Channels, choose
from trainables.federation import Federation


def channels(fed: Federation, round_: int, client: int) -> Channels:
    """K_i,t: k of each group's n channels, drawn anew for each client and round t = 1, 2, …"""

    def random(group: str, n: int, k: int) -> Tensor:
        generator = fed.rng.torch("submodel", "round", round_, "client", client, group)
        return torch.randperm(n, generator=generator)[:k].sort().values

    return choose(fed, client, random)


METHOD = partial_training(
    "feddropout",
    "Federated Dropout",
    "Caldas et al., 2018",
    lambda config, fed, round_, client: channels(fed, round_, client),
)
