"""FedAdam: federated averaging with Adam on the server.

Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan: Adaptive Federated Optimization, ICLR 2021, Algorithm 2.

    client   w_i ← w;  I_c times:  w_i ← w_i - η ∇ CE(f(x; w_i), y)
    server   Δ ← Σ_i n_i (w_i - w) / Σ_i n_i                 over the round's clients
             m ← β₁ m + (1 - β₁) Δ
             v ← β₂ v + (1 - β₂) Δ²
             w ← w + η_s m / (√v + τ)

    β₁   beta1      β₂   beta2      τ   tau      η_s   server_lr      η   lr      I_c   local_steps
    m, v   moments of the weights, entry by entry; m = 0 and v = τ² before round 1

With β₁ = 0, β₂ = 1 and η_s = 2τ the step is FedAvg's up to rounding.

Differs from the paper: clients are weighed by size, as in its experiments (Algorithm 2 weighs them equally). Moments
are not corrected for their start, as in the paper. Running statistics are averaged.
"""

from __future__ import annotations

from torch import Tensor

from trainables.building_blocks.server_optimiser import AdaptiveServer, AdaptiveState, adaptive_init, adaptive_server
from trainables.method import Method
from trainables.methods import fedavg

Config, State = AdaptiveServer, AdaptiveState


def second(beta2: float, v: Tensor, squared: Tensor) -> Tensor:
    """`β₂ v + (1 - β₂) Δ²`."""
    return beta2 * v + (1 - beta2) * squared


METHOD = Method(
    name="fedadam",
    title="FedAdam",
    reference="Reddi et al., ICLR 2021",
    family="one global model",
    Config=Config,
    State=State,
    init=adaptive_init,
    download=fedavg.download,
    job=fedavg.job,
    server=adaptive_server(second),
    one_pass=True,
)
