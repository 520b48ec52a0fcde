"""FedPer: federated learning with personalization layers.

Arivazhagan, Aggarwal, Singh, Choudhary: Federated Learning with Personalization Layers, 2019.

    client   I_c times:  (θ_i, φ_i) ← (θ_i, φ_i) - η ∇ CE(D(F(x; θ_i); φ_i), y),   starting from θ_i = θ and its own φ_i
    server   θ ← Σ_i n_i θ_i / Σ_i n_i                       over the round's clients

    θ    feature extractor, shared           η     lr             n_i   training samples of client i
    φ_i  head, never leaves client i         I_c   local_steps

Heads start from the federation's common initial model. There is no global model; `g_acc_virtual` measures what an
average of the complete local models would be worth.

Differs from the paper: the personal part is the network's head (as in FedMD-CG's comparison); the paper also tries more
layers.
"""

from __future__ import annotations

from trainables.building_blocks.split_model import body_of, half_shared, head_of
from trainables.local import LocalTraining

METHOD = half_shared(
    shared=body_of,
    private=head_of,
    name="fedper",
    title="FedPer",
    reference="Arivazhagan et al., 2019",
    family="shared features, personal head",
    Config=LocalTraining,
    virtual=True,
)
