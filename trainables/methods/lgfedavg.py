"""LG-FedAvg: local representations, global head.

Liang, Liu, Ziyin, Allen, Auerbach, Brent, Salakhutdinov, Morency: Think Locally, Act Globally: Federated Learning with
Local and Global Representations, 2020.

    client   I_c times:  (θ_i, φ_i) ← (θ_i, φ_i) - η ∇ CE(D(F(x; θ_i); φ_i), y),   starting from its own θ_i and φ_i = φ
    server   φ ← Σ_i n_i φ_i / Σ_i n_i                       over the round's clients

    θ_i  feature extractor, never leaves client i     η     lr             n_i   training samples of client i
    φ    head, shared                                 I_c   local_steps

Extractors start from the federation's common initial model. There is no global model; `g_acc_virtual` measures what an
average of the complete local models would be worth.

Differs from the paper: the rounds of FedAvg it starts from are left out, as in FedMD-CG's comparison.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainables.building_blocks.shared_part import sharing_method
from trainables.local import LocalTraining


@dataclass(frozen=True)
class Config(LocalTraining):
    """Local training is all there is to set."""


METHOD = sharing_method(
    "head",
    Config,
    name="lgfedavg",
    title="LG-FedAvg",
    reference="Liang et al., 2020",
    family="shared head, personal features",
)
