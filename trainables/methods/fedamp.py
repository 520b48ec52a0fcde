"""FedAMP: personalised federated learning by attentive message passing.

Huang, Chu, Zhou, Wang, Liu, Pei, Zhang: Personalized Cross-Silo Federated Learning on Non-IID Data, AAAI 2021.

    server   u_i ← (1 - Σ_(j≠i) ξ_ij) w_i + Σ_(j≠i) ξ_ij w_j                   over the round's clients i, j
             ξ_ij = α A'(‖w_i - w_j‖²),   A'(x) = exp(-x/σ) / σ
    client   w_i ← u_i;  I_c times:  w_i ← w_i - η ∇ [ CE(f(x; w_i), y) + λ/(2α) ‖w_i - u_i‖² ]

    w_i   client i's personal model       α   alpha, step of the message passing      λ   lambda
    u_i   its cloud model, on the server  σ   reach of the attention                  η   lr

Each client is sent its own u_i; where it has none yet, it starts from the common initial model, which costs nothing, as
everybody draws it from the seed, and without the second term. There is no global model.

Differs from the paper: where Σ_j ξ_ij is above 1, the ξ_ij are scaled to sum to 1 (the paper asks for an α that is
small enough); distances are of trained parameters, running statistics are averaged with the same weights. A client that
was not drawn keeps its cloud model, which PFLlib makes anew of its w_i and the last round's. Training starts from u_i;
the paper asks for the minimum, whatever it is started from. In PFLlib it starts from the client's own w_i, u_i is the
anchor alone, and the penalty is a norm (not its square) of tensors that carry no gradient, so that it changes the loss
and no step: whatever λ is, its FedAMP trains as Local Training does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from search_spaces.parameter import real
from trainables.building_blocks.prototypes import mix
from trainables.federation import ClientData, Federation
from trainables.local import LocalJob, LocalTraining, Objective
from trainables.method import Limit, Method, no_global_model
from trainables.methods.fedavg import returned
from trainables.methods.fedprox import proximal_cross_entropy
from trainables.models import is_statistic
from trainables.params import pack, unpack
from trainables.rng import Rng
from trainables.wire import Params, Payload, Upload


@dataclass(frozen=True)
class Config(LocalTraining):
    """Local training, the attention, and the pull towards the cloud model."""

    alpha: float = real(
        1.0,
        low=1e-6,
        high=1e6,
        log=True,
        symbol="α",
        doc="Step of the message passing: scales how much of other models a client is given.",
        source="FedAMP Eq. 3; PFLlib",
        tune=(1e-3, 1e4),
    )
    reach: float = real(
        1.0,
        low=1e-6,
        high=1e6,
        log=True,
        symbol="σ",
        doc="Reach of the attention: the squared distance at which it has fallen to 1/e.",
        source="FedAMP Sec. 5; PFLlib",
        tune=(0.01, 1e3),
    )
    lambda_: float = real(
        1.0,
        low=0.0,
        high=1e4,
        log=True,
        symbol="λ",
        doc="Weight of the distance to the cloud model; λ/(2α) multiplies its square.",
        source="FedAMP Eq. 4; PFLlib",
        tune=(1e-3, 10.0),
    )


@dataclass(frozen=True)
class State:
    """After `round` rounds: the cloud model u_i of every client that took part."""

    round: int
    clouds: dict[int, Params]


def init(config: Config, fed: Federation, rng: Rng) -> State:
    """No cloud model yet."""
    return State(0, {})


def download(config: Config, fed: Federation, state: State, client: int) -> Payload:
    """The client's own u_i; nothing before its first round."""
    return pack("model", state.clouds.get(client, {}))


def job(config: Config, fed: Federation, payload: Payload, client_state: None, data: ClientData, rng: Rng) -> LocalJob:
    """Trains from the cloud model, held near it."""
    module, cloud = fed.network(), unpack("model", payload)
    if not cloud or config.lambda_ == 0:
        return LocalJob(module, cloud or fed.initial_params(), returned)
    anchor = [cloud[name] for name, _ in module.named_parameters()]
    return LocalJob(module, cloud, returned, partial(_held, config), (anchor,))


def _held(config: Config, anchor: Sequence[Tensor]) -> Objective:
    return proximal_cross_entropy(config.lambda_ / config.alpha, anchor)


def server(config: Config, fed: Federation, state: State, uploads: Sequence[Upload], rng: Rng) -> State:
    """A new cloud model for each of the round's clients."""
    received = [unpack("model", u.payload) for u in uploads]
    weights = attention(config, squared_distances(received))
    made = {name: _mixed(weights, torch.stack([model[name] for model in received])) for name in received[0]}
    fresh = {u.client: {name: many[place].clone() for name, many in made.items()} for place, u in enumerate(uploads)}
    return State(state.round + 1, state.clouds | fresh)


def squared_distances(received: Sequence[Params]) -> Tensor:
    """`‖w_i - w_j‖²` of every pair of S models over their trained parameters, `(S, S)` in float64."""
    names = [name for name, tensor in received[0].items() if tensor.is_floating_point() and not is_statistic(name)]
    flat = [torch.stack([model[name] for model in received]).flatten(1).double() for name in names]
    # Differences are formed explicitly: the shortcut |a|²+|b|²-2ab cancels where models are near each other.
    return torch.stack([torch.stack([(many - row).square().sum(dim=1) for row in many]) for many in flat]).sum(dim=0)


def attention(config: Config, apart: Tensor) -> Tensor:
    """The weights of the models in each u_i, `(S, S)`, row i: ξ_ij, and on the diagonal what is left of 1."""
    xi = config.alpha * torch.exp(-apart / config.reach) / config.reach
    xi = xi * (1.0 - torch.eye(len(xi), dtype=xi.dtype, device=xi.device))
    xi = xi / xi.sum(dim=1, keepdim=True).clamp(min=1.0)
    return xi + torch.diag(1.0 - xi.sum(dim=1))


def _mixed(weights: Tensor, many: Tensor) -> Tensor:
    return mix(weights, many) if many.is_floating_point() else many


METHOD = Method(
    name="fedamp",
    title="FedAMP",
    reference="Huang et al., AAAI 2021",
    family="personalised, one model per client",
    Config=Config,
    State=State,
    init=init,
    download=download,
    job=job,
    server=server,
    global_model=no_global_model,
    limits=(Limit({"reach": 1e-6, "lambda": 0}, equals="local"),),
)
