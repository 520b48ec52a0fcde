"""FedPHP: federated personalisation with inherited private models.

Li, Zhan, Shao, Li, Song: FedPHP: Federated Personalization with Inherited Private Models, ECML PKDD 2021.

    client   w_i ← w;  I_c times:  w_i ← w_i - η ∇ [ (1-λ) CE(f(x; w_i), y) + λ R(w_i, h_i) ]
             h_i ← μ_i h_i + (1-μ_i) w_i,     μ_i = μ min(1, z_i / max(1, c T))
    server   w ← Σ_i n_i w_i / Σ_i n_i                              over the round's clients
    R        mmd: MMD²(φ(x; w_i), φ(x; h_i)),  k(a, b) = Σ_s exp(-‖a - b‖²/2s),  s = 10, 15, 20, 50
             kd:  KL(softmax(f(x; h_i)/T_h) ‖ softmax(f(x; w_i)))

    h_i   client i's inherited private model, its memory, never sent       λ    lambda      transfer   which R
    w     global model                                                     μ    mu          T_h        kd_temperature
    z_i   earlier rounds that client i took part in                        c    share of the clients drawn per round
    T     planned rounds                                                   n_i  training samples of client i

Local accuracy is that of h_i, shared_local_accuracy that of w_i after its training. h_i begins as the common initial
model, which is drawn from the seed; after a client's first round it is w_i.

Differs from the paper: the bandwidths s are PFLlib's, z_i counts the client's own rounds, as in the authors' code, and
kd is the KL where that code has the cross-entropy, of the same gradient. PFLlib differs in three things, none of which
is here: training starts from μ_t w_i + (1-μ_t) w with the client's own last w_i, R is the MMD to the received w, and
μ_t = μ t/T counts the rounds of the federation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from search_spaces.parameter import choice, real
from trainables.building_blocks.losses import kd_kl
from trainables.building_blocks.parameter_kinds import temperature
from trainables.federation import ClientData, Federation
from trainables.local import LocalJob, LocalResult, LocalTraining, Objective
from trainables.method import Limit, Method
from trainables.models import Model
from trainables.params import average, pack, unpack
from trainables.rng import Rng
from trainables.wire import ClientResult, Params, Payload, Upload

#: s of the kernels whose sum the MMD is taken with.
BANDWIDTHS = (10.0, 15.0, 20.0, 50.0)


@dataclass(frozen=True)
class Config(LocalTraining):
    """Local training, what is inherited, and how the memory follows."""

    lambda_: float = real(
        0.05,
        low=0.0,
        high=1.0,
        symbol="λ",
        doc="Weight of what is inherited; 1 - λ is the cross-entropy's.",
        source="FedPHP code",
        tune=(0.0, 0.5),
    )
    mu: float = real(
        0.9,
        low=0.0,
        high=0.999,
        symbol="μ",
        doc="Momentum of the private model in the last planned round; it grows from 0 with the client's rounds.",
        source="FedPHP code",
        tune=(0.0, 0.99),
    )
    transfer: str = choice(
        "mmd",
        ("mmd", "kd"),
        doc="What is inherited: the features' distribution, or soft labels.",
        source="FedPHP Sec. 3; FedPHP code",
        tune=True,
    )
    kd_temperature: float = temperature(
        4.0, symbol="T_h", doc="Temperature of the private model's soft labels.", source="FedPHP code"
    )


@dataclass(frozen=True)
class State:
    """The global model w after `round` rounds."""

    round: int
    model: Params


@dataclass(frozen=True)
class ClientState:
    """A client's private model h_i, and the rounds that it took part in, z_i."""

    model: Params
    times: int


class Inherited(nn.Module):
    """What a private model says of images: its features, or its logits."""

    def __init__(self, model: Model, transfer: str) -> None:
        super().__init__()
        self.model, self.transfer = model, transfer

    def forward(self, x: Tensor) -> Tensor:
        """`(B, p)` or `(B, C)`."""
        said: Tensor = self.model.features(x) if self.transfer == "mmd" else self.model(x)
        return said


def init(config: Config, fed: Federation, rng: Rng) -> State:
    """Draws the initial model."""
    return State(0, fed.initial_params())


def download(config: Config, fed: Federation, state: State, client: int) -> Payload:
    """The whole global model."""
    return pack("model", state.model)


def job(
    config: Config, fed: Federation, payload: Payload, client_state: ClientState | None, data: ClientData, rng: Rng
) -> LocalJob:
    """Trains the received model near the private one, which follows it."""

    known = client_state if client_state is not None else ClientState(fed.initial_params(), 0)

    def finish(model: Params, trained: LocalResult) -> ClientResult:
        memory = follow(known.model, model, momentum(config, fed, known.times))
        return ClientResult(
            upload=pack("model", model),
            client_state=ClientState(memory, known.times + 1),
            model=memory,
            others={"shared": model},
            loss=trained.loss,
        )

    received = unpack("model", payload)
    if config.lambda_ == 0:
        return LocalJob(fed.network(), received, finish)
    _inherited(config, fed)  # built now: nothing may be drawn within a vectorised program
    return LocalJob(fed.network(), received, finish, partial(objective, config, fed), (known.model,))


def momentum(config: Config, fed: Federation, times: int) -> float:
    """μ_i of a client that took part in so many rounds before (0, 1, ...)."""
    expected = max(1.0, fed.rounds * fed.active / fed.clients)
    return config.mu * min(1.0, times / expected)


def follow(memory: Params, model: Params, share: float) -> Params:
    """`μ h + (1-μ) w`; integer buffers are w's."""
    return {
        name: share * memory[name] + (1.0 - share) * tensor if tensor.is_floating_point() else tensor
        for name, tensor in model.items()
    }


def _inherited(config: Config, fed: Federation) -> Inherited:
    return fed.cached(("inherited", config.transfer), lambda: Inherited(fed.network(role="inherited"), config.transfer))


def objective(config: Config, fed: Federation, memory: Params) -> Objective:
    """`(1-λ) CE + λ R`, R by the private model with these weights, in evaluation mode."""
    module = _inherited(config, fed).eval()
    private = {f"model.{name}": tensor for name, tensor in memory.items()}

    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        assert isinstance(model, Model)
        features = model.features(x)
        logits = model.head(features)
        with torch.no_grad():
            said = functional_call(module, private, (x,))
        near = mmd(features, said) if config.transfer == "mmd" else kd_kl(logits, said / config.kd_temperature)
        return (1.0 - config.lambda_) * F.cross_entropy(logits, y) + config.lambda_ * near

    return loss


def mmd(one: Tensor, other: Tensor) -> Tensor:
    """`mean_jk [k(a_j, a_k) + k(b_j, b_k) - 2 k(a_j, b_k)]` of rows a, b `(B, p)`; the kernel is above."""
    return (_kernel(one, one) + _kernel(other, other) - 2.0 * _kernel(one, other)).mean()


def _kernel(rows: Tensor, others: Tensor) -> Tensor:
    # |a|² + |b|² - 2ab, as differences of all pairs would not fit into memory; what cancels is far below s.
    apart = rows.square().sum(dim=1)[:, None] + others.square().sum(dim=1)[None] - 2.0 * rows @ others.T
    return torch.stack([torch.exp(-apart / (2.0 * s)) for s in BANDWIDTHS]).sum(dim=0)


def server(config: Config, fed: Federation, state: State, uploads: Sequence[Upload], rng: Rng) -> State:
    """The average weighted by client sizes."""
    return State(state.round + 1, average((unpack("model", u.payload), fed.sizes[u.client]) for u in uploads))


def _shared_network(config: Config, fed: Federation, client: int) -> Model:
    return fed.network()


METHOD = Method(
    name="fedphp",
    title="FedPHP",
    reference="Li et al., ECML PKDD 2021",
    family="personalised, beside one global model",
    Config=Config,
    State=State,
    ClientState=ClientState,
    init=init,
    download=download,
    job=job,
    server=server,
    one_pass=True,
    other_networks={"shared": _shared_network},
    follows_plan=lambda config, rounds: config.mu > 0,
    limits=(Limit({"lambda": 0, "mu": 0}, equals="fedavg"),),
)
