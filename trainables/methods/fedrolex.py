"""FedRolex: rolling extraction of width-scaled sub-models.

Alam, Liu, Yan, Zhang: FedRolex: Model-Heterogeneous Federated Learning with Rolling Sub-Model Extraction,
NeurIPS 2022.

    K_i,t     k = ⌈R_i n⌉ consecutive channels of every layer from offset t-1, wrapping around
    client    θ_i ← θ[K_i,t];  I_c times:  θ_i ← θ_i - η ∇ CE(f(x; θ_i), y)      outputs of convolutions times 1/R_i
    server    θ[l,k] ← Σ_(i: k ∈ K_i,t) p_i θ_i[l,k] / Σ_(i: k ∈ K_i,t) p_i        DFRD Eq. (1); kept where no client held it

    R_i   width budget (1/2)^min(σ, ⌊ρ i/N⌋)      p_i   n_i (agg_weight = samples) or 1
    n     channels of the layer                    t     round, from 1

Differs from the paper: the window moves forward (the code's moves backward, which is the same up to naming); no overlap
option and no periodic shuffling of channels.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainables.building_blocks.partial_training import PartialTraining, partial_method
from trainables.method import Limit


@dataclass(frozen=True)
class Config(PartialTraining):
    """As for every width-based method."""


METHOD = partial_method(
    "rolling",
    Config,
    name="fedrolex",
    title="FedRolex",
    reference="Alam et al., NeurIPS 2022",
    family="partial training",
    limits=(Limit({"rho": 0}, equals="fedavg"),),
)
