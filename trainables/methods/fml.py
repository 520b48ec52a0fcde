"""FML: federated mutual learning.

Shen, Zhang, Jia, Zhang, Huang, Zhou, Kuang, Wu, Wu: Federated Mutual Learning, 2020.

    client   g_i ← g;  I_c times, on the same batch:
             f_i ← f_i - η ∇ [ α CE(f_i(x), y) + (1-α) KL(softmax(g_i(x)) ‖ softmax(f_i(x))) ]
             g_i ← g_i - η ∇ [ β CE(g_i(x), y) + (1-β) KL(softmax(f_i(x)) ‖ softmax(g_i(x))) ]
    server   g ← 1/|S| Σ_i g_i                                     over the round's clients S

    f_i   client i's own model, kept from round to round, never sent          α   alpha
    g     shared model ("meme"), the global one: shared_model                 β   beta

Only g crosses the wire. The teacher's side of every KL is a constant. Local accuracy is that of f_i,
shared_local_accuracy that of g_i; training loss is f_i's. Clients may have two architectures, see
`trainables.building_blocks.mixed_architectures`.

Differs from the paper: nothing. HtFLlib divides the KL by the number of classes C as well, clips gradients at a norm of
10, and lets each of the two losses move both models: no teacher is held constant, and both losses are propagated back.
Where α = β its division is a setting: α/s in place of both and a rate of s η, with s = α + (1-α)/C.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from search_spaces.parameter import real
from trainables.building_blocks import mixed_architectures as mixed
from trainables.building_blocks import mutual_pair
from trainables.building_blocks.losses import kd_kl
from trainables.building_blocks.mutual_pair import MutualTraining, Pair
from trainables.federation import ClientData, Federation
from trainables.local import LocalJob, LocalResult, Objective
from trainables.method import Limit, Method
from trainables.params import average, pack, unpack
from trainables.rng import Rng
from trainables.wire import ClientResult, Params, Payload, Upload


@dataclass(frozen=True)
class Config(MutualTraining):
    """How much each of the two models learns from labels, and how much from the other."""

    alpha: float = real(
        0.5,
        low=0.0,
        high=1.0,
        symbol="α",
        doc="Share of the cross-entropy in the loss of a client's own model; the rest is the KL.",
        source="FML Sec. 4",
        tune=(0.05, 0.95),
    )
    beta: float = real(
        0.5,
        low=0.0,
        high=1.0,
        symbol="β",
        doc="Share of the cross-entropy in the loss of the shared model; the rest is the KL.",
        source="FML Sec. 4",
        tune=(0.05, 0.95),
    )


@dataclass(frozen=True)
class State:
    """The shared model g after `round` rounds."""

    round: int
    model: Params


@dataclass(frozen=True)
class ClientState:
    """A client's own model `f_i`."""

    model: Params


def init(config: Config, fed: Federation, rng: Rng) -> State:
    """Draws g."""
    return State(0, mutual_pair.initial_shared(config, fed))


def download(config: Config, fed: Federation, state: State, client: int) -> Payload:
    """g."""
    return pack("model", state.model)


def job(
    config: Config, fed: Federation, payload: Payload, client_state: ClientState | None, data: ClientData, rng: Rng
) -> LocalJob:
    """Trains the client's own model and its copy of g together; uploads the copy."""
    own = (
        client_state.model
        if client_state is not None
        else mixed.initial_model(fed, mixed.name_of(config, fed, data.client))
    )
    start = mutual_pair.joined(private=own, shared=unpack("model", payload))
    return LocalJob(mutual_pair.pair(config, fed, data.client), start, _split, partial(objective, config))


def _split(pair: Params, trained: LocalResult) -> ClientResult:
    own, shared = mutual_pair.part("private", pair), mutual_pair.part("shared", pair)
    return ClientResult(
        upload=pack("model", shared),
        client_state=ClientState(own),
        model=own,
        others={"shared": shared},
        loss=trained.loss,
    )


def objective(config: Config) -> Objective:
    """L_f, with the gradients of L_f + L_g."""

    def loss(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        assert isinstance(module, Pair)
        own, shared = module.private(x), module.shared(x)
        return mutual_pair.both(
            mutual_loss(config.alpha, own, shared, y),
            mutual_loss(config.beta, shared, own, y),
        )

    return loss


def mutual_loss(share: float, learner: Tensor, teacher: Tensor, y: Tensor) -> Tensor:
    """`a CE(learner, y) + (1-a) KL(softmax(teacher) ‖ softmax(learner))`, a the `share`, of logits `(B, C)` and labels
    `(B,)`; a term of weight 0 is left out."""
    if share == 1.0:
        return F.cross_entropy(learner, y)
    taught = (1.0 - share) * kd_kl(learner, teacher)
    return taught if share == 0.0 else share * F.cross_entropy(learner, y) + taught


def server(config: Config, fed: Federation, state: State, uploads: Sequence[Upload], rng: Rng) -> State:
    """The plain mean of the clients' copies of g."""
    return State(state.round + 1, average((unpack("model", u.payload), 1.0) for u in uploads))


METHOD = Method(
    name="fml",
    title="FML",
    reference="Shen et al., 2020",
    family="any architecture, mutual learning with a shared model",
    Config=Config,
    State=State,
    ClientState=ClientState,
    init=init,
    download=download,
    job=job,
    server=server,
    one_pass=True,
    architectures=mutual_pair.architectures,
    client_network=mixed.client_network,
    global_network=mutual_pair.shared_network,
    other_networks={"shared": mutual_pair.shared_network},
    limits=(Limit({"alpha": 1, "beta": 1, "nu": 0}, equals="local", other=mixed.LOCAL),),
)
