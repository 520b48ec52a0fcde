"""Federated Dropout: random extraction of width-scaled sub-models.

Caldas, Konečný, McMahan, Talwalkar: Expanding the Reach of Federated Learning by Reducing Client Resource
Requirements, 2018.

    K_i,t     k = ⌈R_i n⌉ channels of every layer, drawn anew for each client and round
    client    θ_i ← θ[K_i,t];  I_c times:  θ_i ← θ_i - η ∇ CE(f(x; θ_i), y)      outputs of convolutions times 1/R_i
    server    θ[l,k] ← Σ_(i: k ∈ K_i,t) p_i θ_i[l,k] / Σ_(i: k ∈ K_i,t) p_i        DFRD Eq. (1); kept where no client held it

    R_i   width budget (1/2)^min(σ, ⌊ρ i/N⌋)      p_i   n_i (agg_weight = samples) or 1
    n     channels of the layer                    t     round, from 1

Differs from the paper: the sub-model's width is the client's own budget, as in DFRD's experiments, not one common rate.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainables.building_blocks.partial_training import PartialTraining, partial_method
from trainables.method import Limit


@dataclass(frozen=True)
class Config(PartialTraining):
    """As for every width-based method."""


METHOD = partial_method(
    "random",
    Config,
    name="feddropout",
    title="Federated Dropout",
    reference="Caldas et al., 2018",
    family="partial training",
    limits=(Limit({"rho": 0}, equals="fedavg"),),
)
