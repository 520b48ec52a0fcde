"""FedPer: federated learning with personalization layers.

Arivazhagan, Aggarwal, Singh, Choudhary: Federated Learning with Personalization Layers, 2019.

    client   I_c times:  (θ_i, φ_i) ← (θ_i, φ_i) - η ∇ CE(D(F(x; θ_i); φ_i), y),   starting from θ_i = θ and its own φ_i
    server   θ ← Σ_i n_i θ_i / Σ_i n_i                       over the round's clients

    θ    feature extractor, shared           η     lr             n_i   training samples of client i
    φ_i  head, never leaves client i         I_c   local_steps

Heads start from the federation's common initial model. There is no global model; `g_acc_virtual` measures what an
average of the complete local models would be worth.

Differs from the paper: the personal part is the network's head (as in FedMD-CG's comparison); the paper also tries more
layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainables.building_blocks.split_model import body_of, head_of
from trainables.federation import ClientData, Federation
from trainables.local import LocalJob, LocalResult, LocalTraining, client_of
from trainables.method import Limit, Method, no_global_model
from trainables.params import average, pack, unpack
from trainables.rng import Rng
from trainables.wire import ClientResult, Params, Payload, Upload


@dataclass(frozen=True)
class Config(LocalTraining):
    """Local training is all there is to set."""


@dataclass(frozen=True)
class State:
    """The extractor θ after `round` rounds."""

    round: int
    shared: Params


@dataclass(frozen=True)
class ClientState:
    """A client's head `φ_i`."""

    private: Params


def init(config: Config, fed: Federation, rng: Rng) -> State:
    """The extractor θ of the initial model."""
    return State(0, body_of(fed.initial_params()))


def download(config: Config, fed: Federation, state: State, client: int) -> Payload:
    """The extractor θ."""
    return pack("model", state.shared)


def job(
    config: Config, fed: Federation, payload: Payload, client_state: ClientState | None, data: ClientData, rng: Rng
) -> LocalJob:
    """Trains the received θ together with the client's own φ_i."""
    own = client_state.private if client_state is not None else head_of(fed.initial_params())
    return LocalJob(fed.network(), unpack("model", payload) | own, _shared_and_kept)


client = client_of(job)


def _shared_and_kept(model: Params, trained: LocalResult) -> ClientResult:
    """θ_i is uploaded, φ_i stays."""
    return ClientResult(
        upload=pack("model", body_of(model)), client_state=ClientState(head_of(model)), model=model, loss=trained.loss
    )


def server(config: Config, fed: Federation, state: State, uploads: Sequence[Upload], rng: Rng) -> State:
    """The average of the extractors, weighted by client sizes."""
    return State(state.round + 1, average((unpack("model", u.payload), fed.sizes[u.client]) for u in uploads))


METHOD = Method(
    name="fedper",
    title="FedPer",
    reference="Arivazhagan et al., 2019",
    family="shared features, personal head",
    Config=Config,
    State=State,
    ClientState=ClientState,
    init=init,
    download=download,
    client=client,
    job=job,
    server=server,
    global_model=no_global_model,
    virtual=True,
    limits=(Limit({"clients": 1}, equals="local", other={"clients": 1}),),
)
