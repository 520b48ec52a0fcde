"""LG-FedAvg: local representations, global head.

Liang, Liu, Ziyin, Allen, Auerbach, Brent, Salakhutdinov, Morency: Think Locally, Act Globally: Federated Learning with
Local and Global Representations, 2020.

    client   I_c times:  (θ_i, φ_i) ← (θ_i, φ_i) - η ∇ CE(D(F(x; θ_i); φ_i), y),   starting from its own θ_i and φ_i = φ
    server   φ ← Σ_i n_i φ_i / Σ_i n_i                       over the round's clients

    θ_i  feature extractor, never leaves client i     η     lr             n_i   training samples of client i
    φ    head, shared                                 I_c   local_steps

Extractors start from the initial model of their architecture, the head from that of the federation's model. There is no
global model; `g_acc_virtual` measures what an average of the complete local models would be worth. With nu > 0 clients
have two architectures, see `trainables.building_blocks.mixed_architectures`: D is one linear layer of one shape in
both, so that the equations stay as they are, and there is nothing to average but φ.

Differs from the paper: the rounds of FedAvg it starts from are left out, as in FedMD-CG's comparison, and as in
PFLlib and HtFLlib, where clients of any architecture share the last layer alone; the rounds of HtFLlib are those here.
"""

from __future__ import annotations

from trainables.building_blocks import mixed_architectures as mixed
from trainables.building_blocks.mixed_architectures import DeepClients
from trainables.building_blocks.split_model import body_of, half_shared, head_of
from trainables.federation import Federation
from trainables.wire import Params


def initial_model(config: DeepClients, fed: Federation, client: int) -> Params:
    """The initial model of the client's architecture."""
    return mixed.initial_model(fed, mixed.name_of(config, fed, client))


METHOD = half_shared(
    shared=head_of,
    private=body_of,
    network=mixed.client_network,
    initial_model=initial_model,
    name="lgfedavg",
    title="LG-FedAvg",
    reference="Liang et al., 2020",
    family="shared head, personal features",
    Config=DeepClients,
    architectures=mixed.trained_models,
    client_network=mixed.client_network,
    check=mixed.unequal_heads,
    virtual=mixed.one_architecture,
)
