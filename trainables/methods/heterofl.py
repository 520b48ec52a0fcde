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

import torch
from torch import Tensor

from trainables.building_blocks.partial_training import partial_training
from trainables.building_blocks.submodels import Channels, choose
from trainables.federation import Federation


def channels(fed: Federation, round_: int, client: int) -> Channels:
    """K_i,t: the first k of each group's n channels, in every round the same."""

    def first(group: str, n: int, k: int) -> Tensor:
        return torch.arange(k)

    return choose(fed, client, first)


METHOD = partial_training(
    "heterofl",
    "HeteroFL",
    "Diao et al., ICLR 2021",
    lambda config, fed, round_, client: channels(fed, round_, client),
)
