"""HeteroFL: static extraction of width-scaled sub-models.

Diao, Ding, Tarokh: HeteroFL: Computation and Communication Efficient Federated Learning for Heterogeneous
Clients, ICLR 2021.

    K_i,t     the first k = ⌈R_i n⌉ channels of every layer
    client    θ_i ← θ[K_i,t];  I_c times:  θ_i ← θ_i - η ∇ CE(f(x; θ_i), y)      outputs of convolutions times 1/R_i
    server    θ[l,k] ← Σ_(i: k ∈ K_i,t) p_i θ_i[l,k] / Σ_(i: k ∈ K_i,t) p_i        DFRD Eq. (1); kept where no client held it

    R_i   width budget (1/2)^min(σ, ⌊ρ i/N⌋)      p_i   n_i (agg_weight = samples) or 1
    n     channels of the layer                    t     round, from 1

Differs from the paper: entries are weighted by n_i (the code weighs all holders alike: agg_weight = uniform); the masked
cross-entropy is off unless asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainables.building_blocks.partial_training import PartialTraining, partial_method
from trainables.method import Limit


@dataclass(frozen=True)
class Config(PartialTraining):
    """As for every width-based method."""


METHOD = partial_method(
    "static",
    Config,
    name="heterofl",
    title="HeteroFL",
    reference="Diao et al., ICLR 2021",
    family="partial training",
    limits=(Limit({"rho": 0}, equals="fedavg"),),
)
