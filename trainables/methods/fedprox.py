"""FedProx: federated averaging with a proximal term.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: Federated Optimization in Heterogeneous Networks, MLSys 2020.

    client   w_i ← w;  I_c times:  w_i ← w_i - η ∇ [ CE(f(x; w_i), y) + μ/2 ‖w_i - w‖² ]         (2)
    server   w ← Σ_i n_i w_i / Σ_i n_i                       over the round's clients

    w     global model, as received      μ   mu      η   lr      I_c   local_steps

Differs from the paper: the server weighs clients by size and draws them uniformly, as FedAvg does (the paper draws them
by size and weighs them equally). Clients of unequal work are stragglers and straggler_work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from search_spaces.parameter import real
from trainables.building_blocks.model_cache import ModelCache, caching, oca_limit
from trainables.federation import ClientData, Federation
from trainables.local import LocalJob, Objective
from trainables.method import Limit, Method
from trainables.methods import fedavg
from trainables.params import unpack
from trainables.rng import Rng
from trainables.wire import Payload


@dataclass(frozen=True)
class Config(ModelCache):
    """Local training and the proximal term's weight."""

    mu: float = real(
        0.001,
        low=0.0,
        high=1000.0,
        log=True,
        symbol="μ",
        doc="Weight of the proximal term.",
        source="FedProx Eq. 2; FedKF Sec. VI-A",
        tune=(1e-5, 10.0),
    )


def job(config: Config, fed: Federation, payload: Payload, client_state: None, data: ClientData, rng: Rng) -> LocalJob:
    """Trains the received model, held near what was received."""
    module, received = fed.network(), unpack("model", payload)
    if config.mu == 0:
        return LocalJob(module, received, fedavg.returned)
    anchor = [received[name] for name, _ in module.named_parameters()]
    return LocalJob(module, received, fedavg.returned, partial(proximal_cross_entropy, config.mu), (anchor,))


def proximal_cross_entropy(mu: float, anchor: Sequence[Tensor]) -> Objective:
    """Eq. (2): the mean cross-entropy plus `μ/2 ‖w - anchor‖²` over the module's parameters, in their order."""

    def objective(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(module(x), y) + mu / 2 * squared_distance(module.parameters(), anchor)

    return objective


def squared_distance(parameters: Iterable[Tensor], anchor: Sequence[Tensor]) -> Tensor:
    """`Σ ‖w - anchor‖²` over tensors paired in order, a scalar."""
    return torch.stack([(p - a).square().sum() for p, a in zip(parameters, anchor, strict=True)]).sum()


METHOD = caching(
    Method(
        name="fedprox",
        title="FedProx",
        reference="Li et al., MLSys 2020",
        family="one global model",
        Config=Config,
        State=fedavg.State,
        init=fedavg.init,
        download=fedavg.download,
        job=job,
        server=fedavg.server,
        one_pass=True,
        limits=(
            Limit({"mu": 0}, equals="fedavg"),
            oca_limit({"mu": 0}),
        ),
    )
)
