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

from collections.abc import Sequence
from dataclasses import dataclass

from trainables.building_blocks import mixed_architectures as mixed
from trainables.building_blocks.mixed_architectures import DeepClients
from trainables.building_blocks.split_model import body_of, head_of
from trainables.federation import ClientData, Federation
from trainables.local import LocalJob, LocalResult, client_of
from trainables.method import Limit, Method, no_global_model
from trainables.params import average, pack, unpack
from trainables.rng import Rng
from trainables.wire import ClientResult, Params, Payload, Upload


@dataclass(frozen=True)
class Config(DeepClients):
    """Local training, and who has which model."""


@dataclass(frozen=True)
class State:
    """The head φ after `round` rounds."""

    round: int
    shared: Params


@dataclass(frozen=True)
class ClientState:
    """A client's extractor `θ_i`."""

    private: Params


def init(config: Config, fed: Federation, rng: Rng) -> State:
    """The head φ of the initial model."""
    return State(0, head_of(fed.initial_params()))


def download(config: Config, fed: Federation, state: State, client: int) -> Payload:
    """The head φ."""
    return pack("model", state.shared)


def job(
    config: Config, fed: Federation, payload: Payload, client_state: ClientState | None, data: ClientData, rng: Rng
) -> LocalJob:
    """Trains the received φ together with the client's own θ_i."""
    name = mixed.name_of(config, fed, data.client)
    own = client_state.private if client_state is not None else body_of(mixed.initial_model(fed, name))
    return LocalJob(mixed.network(fed, name), unpack("model", payload) | own, _shared_and_kept)


client = client_of(job)


def _shared_and_kept(model: Params, trained: LocalResult) -> ClientResult:
    """φ_i is uploaded, θ_i stays."""
    return ClientResult(
        upload=pack("model", head_of(model)), client_state=ClientState(body_of(model)), model=model, loss=trained.loss
    )


def server(config: Config, fed: Federation, state: State, uploads: Sequence[Upload], rng: Rng) -> State:
    """The average of the heads, weighted by client sizes."""
    return State(state.round + 1, average((unpack("model", u.payload), fed.sizes[u.client]) for u in uploads))


METHOD = Method(
    name="lgfedavg",
    title="LG-FedAvg",
    reference="Liang et al., 2020",
    family="shared head, personal features",
    Config=Config,
    State=State,
    ClientState=ClientState,
    init=init,
    download=download,
    client=client,
    job=job,
    server=server,
    global_model=no_global_model,
    architectures=mixed.trained_models,
    client_network=mixed.client_network,
    check=mixed.unequal_heads,
    virtual=mixed.one_architecture,
    limits=(Limit({"clients": 1}, equals="local", other={"clients": 1}),),
)
