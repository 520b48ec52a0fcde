"""FedGH: heterogeneous federated learning with generalized global header.

Yi, Wang, Liu, Shi, Yu: FedGH: Heterogeneous Federated Learning with Generalized Global Header, ACM MM 2023.

    client   h_i ← h;  I_c times:  (φ_i, h_i) ← (φ_i, h_i) - η ∇ CE(h_i(φ_i(x)), y)
             C_i^j ← mean of φ_i(x) over client i's samples of class j
    server   E_s times, over all C_i^j of the round in random order, batches of B_s:
             h ← h - η_s ∇ CE(h(C_i^j), j)

    φ_i   client i's extractor, kept from round to round, never sent; of width p       η     lr
    h     global header, one linear layer p → C                                        η_s   server_lr
    E_s   server_epochs      B_s   server_batch_size

Prototypes go up, the header comes down; there is no complete global model. Local accuracy is that of the trained
[φ_i, h_i]. Clients may have two architectures, see `trainables.building_blocks.mixed_architectures`.

Differs from the paper: the server passes over the prototypes E_s times in batches, as in HtFLlib; the first h is that
of the federation's initial model. HtFLlib leaves the last incomplete batch of a client's samples out of its prototypes,
where here they are of all samples. No setting makes it another method: with E_s = 0 every client begins each round with
the first h again, which none does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from trainables.building_blocks import mixed_architectures as mixed
from trainables.building_blocks import prototypes
from trainables.building_blocks.mixed_architectures import MixedArchitectures
from trainables.building_blocks.prototypes import PrototypePasses, labelled, learn
from trainables.building_blocks.split_model import head_module, head_of, put_head, take_head
from trainables.federation import ClientData, Federation
from trainables.local import LocalJob, LocalResult
from trainables.method import Method, no_global_model
from trainables.params import pack, put, unpack
from trainables.rng import Rng
from trainables.wire import ClientResult, Params, Payload, Upload


@dataclass(frozen=True)
class Config(PrototypePasses, MixedArchitectures):
    """The training of the header."""


@dataclass(frozen=True)
class State:
    """The global header h after `round` rounds."""

    round: int
    head: Params


@dataclass(frozen=True)
class ClientState:
    """A client's own model [φ_i, h_i]; its header is replaced when the next round begins."""

    model: Params


def init(config: Config, fed: Federation, rng: Rng) -> State:
    """The header of the initial model."""
    return State(0, head_of(fed.initial_params()))


def download(config: Config, fed: Federation, state: State, client: int) -> Payload:
    """The header."""
    return pack("head", state.head)


def job(
    config: Config, fed: Federation, payload: Payload, client_state: ClientState | None, data: ClientData, rng: Rng
) -> LocalJob:
    """Trains the client's extractor with the received header; uploads its prototypes."""
    name = mixed.name_of(config, fed, data.client)
    module = mixed.network(fed, name)
    own = mixed.initial_model(fed, name) if client_state is None else client_state.model

    def finish(model: Params, trained: LocalResult) -> ClientResult:
        put(module, model)
        upload = prototypes.owned("prototype", prototypes.class_means(module, data), data.label_counts())
        return ClientResult(upload=upload, client_state=ClientState(model), model=model, loss=trained.loss)

    return LocalJob(module, own | unpack("head", payload), finish)


def server(config: Config, fed: Federation, state: State, uploads: Sequence[Upload], rng: Rng) -> State:
    """Trains the header to tell the round's prototypes apart."""
    head = head_module(fed, "global")
    put_head(head, state.head)
    rows, labels = labelled([u.payload for u in uploads], fed)
    learn(config, rows, labels, head, partial(header_loss, head), fed, rng)
    return State(state.round + 1, take_head(head))


def header_loss(head: nn.Module, rows: Tensor, labels: Tensor) -> Tensor:
    """`mean CE(h(C_i^j), j)` of prototypes `(B, p)` and their classes `(B,)`."""
    return F.cross_entropy(head(rows), labels)


METHOD = Method(
    name="fedgh",
    title="FedGH",
    reference="Yi et al., ACM MM 2023",
    family="any architecture, shared prototypes",
    Config=Config,
    State=State,
    ClientState=ClientState,
    init=init,
    download=download,
    job=job,
    server=server,
    recordable_server=True,
    global_model=no_global_model,
    architectures=mixed.architectures,
    client_network=mixed.client_network,
)
