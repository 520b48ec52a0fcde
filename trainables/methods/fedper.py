"""FedPer: federated learning with personalization layers.

Arivazhagan, Aggarwal, Singh, Choudhary: Federated Learning with Personalization Layers, 2019.

    client   I_c times:  (θ_i, φ_i) ← (θ_i, φ_i) - η ∇ CE(D(F(x; θ_i); φ_i), y),   starting from θ_i = θ and its own φ_i
    server   θ ← Σ_i n_i θ_i / Σ_i n_i                       over the round's clients

    θ    feature extractor, shared           η     lr             n_i   training samples of client i
    φ_i  head, never leaves client i         I_c   local_steps

Heads start from the federation's common initial model. There is no global model; `g_acc_virtual` measures what an
average of the complete local models would be worth.

Differs from the paper: the personal part is the network's head (as in FedMD-CG's comparison); the paper also tries more layers.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainables.building_blocks.shared_part import sharing_method
from trainables.local import LocalTraining


@dataclass(frozen=True)
class Config(LocalTraining):
    """Local training is all there is to set."""


METHOD = sharing_method(
    "features",
    Config,
    name="fedper",
    title="FedPer",
    reference="Arivazhagan et al., 2019",
    family="shared features, personal head",
)
