"""FedAvg: federated averaging.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: Communication-Efficient Learning of Deep Networks from Decentralized
Data, AISTATS 2017.

    client   w_i ← w;  I_c times:  w_i ← w_i - η ∇ CE(f(x; w_i), y)
    server   w ← Σ_i n_i w_i / Σ_i n_i                       over the round's clients

    w     global model                n_i   training samples of client i
    η     lr                          I_c   local_steps

FedAvg(OCA) of FedKF is readout oca: the average over every client's latest model, see
`trainables.building_blocks.model_cache`.

Differs from the paper: nothing (its E local epochs are local_epochs). In PFLlib every epoch begins anew and leaves out
what fills no batch, and a client with fewer samples than a batch trains nothing; here, whatever the method, batches run
on from one epoch into the next, and such a client has one batch of all its samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainables.building_blocks.model_cache import Cache, ModelCache, caching
from trainables.federation import ClientData, Federation
from trainables.local import LocalJob, LocalResult, LocalTraining
from trainables.method import Limit, Method
from trainables.params import average, pack, unpack
from trainables.rng import Rng
from trainables.wire import ClientResult, Params, Payload, Upload


@dataclass(frozen=True)
class Config(ModelCache):
    """Local training, and whether the server caches models."""


@dataclass(frozen=True)
class State:
    """The server's global model `w`, and its cache if it keeps one."""

    model: Params
    cache: Cache | None = None


def init(config: LocalTraining, fed: Federation, rng: Rng) -> State:
    """Draws the initial model."""
    return State(fed.initial_params())


def download(config: LocalTraining, fed: Federation, state: State, client: int) -> Payload:
    """The whole global model."""
    return pack("model", state.model)


def job(
    config: LocalTraining, fed: Federation, payload: Payload, client_state: None, data: ClientData, rng: Rng
) -> LocalJob:
    """Trains the received model on the client's data and returns it."""
    return LocalJob(fed.network(), unpack("model", payload), returned)


def returned(model: Params, trained: LocalResult) -> ClientResult:
    """The trained model goes back."""
    return ClientResult(upload=pack("model", model), model=model, loss=trained.loss)


def server(config: LocalTraining, fed: Federation, state: State, uploads: Sequence[Upload], rng: Rng) -> State:
    """The average weighted by client sizes."""
    return State(average((unpack("model", u.payload), fed.sizes[u.client]) for u in uploads))


METHOD = caching(
    Method(
        name="fedavg",
        title="FedAvg",
        reference="McMahan et al., AISTATS 2017",
        family="one global model",
        Config=Config,
        State=State,
        init=init,
        download=download,
        job=job,
        server=server,
        one_pass=True,
        virtual=True,
        limits=(Limit({"readout": "oca"}, equals="fedavg"),),
    )
)
