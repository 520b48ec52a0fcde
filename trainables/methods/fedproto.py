"""FedProto: federated prototype learning.

Tan, Long, Liu, Zhou, Lu, Jiang, Zhang: FedProto: Federated Prototype Learning across Heterogeneous Clients, AAAI 2022.

    client   I_c times:  ω_i ← ω_i - η ∇ [ CE(h_i(φ_i(x)), y) + λ mean_p (φ_i(x) - C̄^y)² ]
             C_i^j ← mean of φ_i(x) over client i's samples of class j
    server   C̄^j ← Σ_i |D_i^j| C_i^j / Σ_i |D_i^j|           over the round's clients that hold class j
    predict  argmin_j ‖φ_i(x) - C^j‖,   C^j = C̄^j as received, C_i^j where none was received

    ω_i = [φ_i, h_i]   client i's own model, kept from round to round, of width p       λ  lambda
    |D_i^j|            samples of class j that client i holds

Prototypes and these counts go up, global prototypes come down; there is no global model. With predict = head the
model's own logits decide. Clients may have two architectures, see `trainables.building_blocks.mixed_architectures`.

Differs from the paper: the distance to the prototype is of every sample, and a mean square, as in the authors' code
(proto_norm l2: Euclidean); that code also averages prototypes with equal weights (weighting owners, which sends no
counts). A class that nobody reports in a round keeps its prototype, where HtFLlib's clients have none for it then.
HtFLlib averages a client's features along its training steps, where here they are of the trained model, and measures a
client at the start of a round, with the prototypes of the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from search_spaces.parameter import choice, real
from trainables.building_blocks import mixed_architectures as mixed
from trainables.building_blocks import prototypes
from trainables.building_blocks.mixed_architectures import MixedArchitectures
from trainables.federation import ClientData, Federation
from trainables.local import LocalJob, LocalResult
from trainables.method import Limit, Method, no_global_model
from trainables.methods import dhf
from trainables.params import put
from trainables.rng import Rng
from trainables.wire import ClientResult, Params, Payload, Upload


@dataclass(frozen=True)
class PrototypeTraining(MixedArchitectures):
    """Training near prototypes, and how a client predicts."""

    lambda_: float = real(
        1.0,
        low=0.0,
        high=1e4,
        log=True,
        symbol="λ",
        doc="Weight of the distance to the class prototype.",
        source="FedProto code",
        tune=(0.01, 100),
    )
    proto_norm: str = choice(
        "mse",
        ("mse", "l2"),
        doc="Distance to the prototype: mean square, or Euclidean.",
        source="FedProto code; FedProto Sec. 3",
    )
    predict: str = choice(
        "prototypes",
        ("prototypes", "head"),
        doc="Whose prediction local accuracy measures: the nearest prototype's, or the head's.",
        source="FedProto code",
    )


@dataclass(frozen=True)
class Config(PrototypeTraining):
    """FedProto's client, and the weights of its server's average."""

    weighting: str = choice(
        "samples",
        ("samples", "owners"),
        doc="A client's weight in a class's prototype: its samples of the class, or 1 (no counts are sent then).",
        source="FedProto Sec. 3; FedProto code",
        tune=True,
    )


@dataclass(frozen=True)
class State:
    """After `round` rounds: the global prototypes `(p,)` by class, of the classes that have one."""

    round: int
    prototypes: dict[int, Tensor]


@dataclass(frozen=True)
class ClientState:
    """A client's own model ω_i."""

    model: Params


def init(config: Config, fed: Federation, rng: Rng) -> State:
    """No prototype yet."""
    return State(0, {})


def download(config: PrototypeTraining, fed: Federation, state: State, client: int) -> Payload:
    """The prototypes there are."""
    return {f"prototype/{j}": prototype for j, prototype in state.prototypes.items()}


def job(
    config: Config, fed: Federation, payload: Payload, client_state: ClientState | None, data: ClientData, rng: Rng
) -> LocalJob:
    """Trains the client's own model near the prototypes; uploads its own ones and, unless all weigh alike, counts."""
    return training(config, fed, payload, client_state, data, counted=config.weighting == "samples")


def training(
    config: PrototypeTraining,
    fed: Federation,
    payload: Payload,
    client_state: ClientState | None,
    data: ClientData,
    *,
    counted: bool,
) -> LocalJob:
    """The job of a client that trains near the received prototypes and uploads its own."""
    module = mixed.client_network(config, fed, data.client)
    start = (
        mixed.initial_model(fed, mixed.name_of(config, fed, data.client))
        if client_state is None
        else client_state.model
    )
    received = prototypes.by_class("prototype", payload)

    def finish(model: Params, trained: LocalResult) -> ClientResult:
        put(module, model)
        means, counts = prototypes.class_means(module, data), data.label_counts()
        own = prototypes.owned("prototype", means, counts)
        measured = model
        if config.predict == "prototypes":
            known = prototypes.by_class("prototype", own) | received
            measured = prototypes.with_prototypes(model, known, fed.classes)
        upload = own | (prototypes.owned("count", counts.to(torch.int32), counts) if counted else {})
        return ClientResult(upload=upload, client_state=ClientState(model), model=measured, loss=trained.loss)

    return LocalJob(module, start, finish, partial(dhf.objective, config, fed), (received,))


def server(config: Config, fed: Federation, state: State, uploads: Sequence[Upload], rng: Rng) -> State:
    """The mean of every class's prototypes."""
    merged = prototypes.pooled(_report(config, u.payload) for u in uploads)
    return State(state.round + 1, state.prototypes | merged)


def _report(config: Config, payload: Payload) -> tuple[dict[int, Tensor], dict[int, float]]:
    """A client's prototypes and their weights by class."""
    own = prototypes.by_class("prototype", payload)
    if config.weighting == "owners":
        return own, dict.fromkeys(own, 1.0)
    return own, {j: float(count) for j, count in prototypes.by_class("count", payload).items()}


def client_network(config: PrototypeTraining, fed: Federation, client: int) -> nn.Module:
    """What predicts: the client's model, or that with prototypes in place of its head."""
    name = mixed.name_of(config, fed, client)
    if config.predict == "head":
        return mixed.network(fed, name)
    return fed.cached(("nearest prototype", name), lambda: prototypes.NearestPrototype(fed.built(name)))


METHOD = Method(
    name="fedproto",
    title="FedProto",
    reference="Tan et al., AAAI 2022",
    family="any architecture, shared prototypes",
    Config=Config,
    State=State,
    ClientState=ClientState,
    init=init,
    download=download,
    job=job,
    server=server,
    one_pass=True,
    global_model=no_global_model,
    architectures=mixed.architectures,
    client_network=client_network,
    around=prototypes.NearestPrototype,
    shares_label_counts=True,
    limits=(Limit({"lambda": 0, "predict": "head", "nu": 0}, equals="local", other=mixed.LOCAL),),
)
