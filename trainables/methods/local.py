"""Local Training: every client by itself, the floor that federated methods are measured against.

The baseline "LT" of FedMD-CG's tables (Luo, Wang, Li, Lan, Gao, Shu: Privacy-Preserving Federated Learning with
Consistency via Knowledge Distillation Using Conditional Generator).

    client   I_c times:  w_i ← w_i - η ∇ CE(f(x; w_i), y)
    server   nothing; there is no global model

    w_i   client i's own model, kept from round to round      η   lr      I_c   local_steps

Nothing crosses the wire: every client draws the common initial model from the federation's seed. `g_acc_virtual`
measures what an average of the local models would be worth.

Differs from the paper: nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainables.federation import ClientData, Federation
from trainables.local import LocalJob, LocalResult, LocalTraining
from trainables.method import Method, no_global_model
from trainables.rng import Rng
from trainables.wire import ClientResult, Params, Payload, Upload


@dataclass(frozen=True)
class Config(LocalTraining):
    """Local training is all there is to set."""


@dataclass(frozen=True)
class State:
    """The server knows only how many rounds have passed."""

    round: int


@dataclass(frozen=True)
class ClientState:
    """A client's own model `w_i`."""

    model: Params


def init(config: Config, fed: Federation, rng: Rng) -> State:
    """Nothing yet."""
    return State(0)


def download(config: Config, fed: Federation, state: State, client: int) -> Payload:
    """Nothing."""
    return {}


def job(
    config: Config, fed: Federation, payload: Payload, client_state: ClientState | None, data: ClientData, rng: Rng
) -> LocalJob:
    """Goes on training the client's own model; uploads nothing."""
    return LocalJob(fed.network(), client_state.model if client_state is not None else fed.initial_params(), _kept)


def _kept(model: Params, trained: LocalResult) -> ClientResult:
    return ClientResult(upload={}, client_state=ClientState(model), model=model, loss=trained.loss)


def server(config: Config, fed: Federation, state: State, uploads: Sequence[Upload], rng: Rng) -> State:
    """Counts the round."""
    return State(state.round + 1)


METHOD = Method(
    name="local",
    title="Local Training",
    reference="baseline of FedMD-CG",
    family="no communication",
    Config=Config,
    State=State,
    ClientState=ClientState,
    init=init,
    download=download,
    job=job,
    server=server,
    one_pass=True,
    global_model=no_global_model,
    virtual=True,
)
