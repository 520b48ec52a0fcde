"""SCAFFOLD: control variates hold clients on the common course.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: SCAFFOLD: Stochastic Controlled Averaging for Federated Learning, ICML
2020, Algorithm 1, option II.

    client   w_i ← w;  K times:  w_i ← w_i - η (∇ CE(f(x; w_i), y) - c_i + c)
             c_i⁺ ← c_i - c + (w - w_i) / (K η);      Δc_i = c_i⁺ - c_i,   c_i ← c_i⁺
    server   w ← w + η_g 1/|S| Σ_i (w_i - w),      c ← c + 1/N Σ_i Δc_i       over the round's clients S

    c     control of the server, 0 before round 1      η     lr             K   steps made: local_steps, less where slow
    c_i   control of client i, kept by it, 0 at first  η_g   server_lr      N   clients of the federation

w and c go down, w_i and Δc_i go up: twice FedAvg's bytes. The loss that is recorded is the cross-entropy alone.

Differs from the paper: nothing with plain SGD, and PFLlib does the same (in older versions of it K is the batches of
one epoch, however many are made, and uploads are weighed by their clients' samples). With momentum or weight
decay c_i is still (w - w_i)/(K η), which then is more than a mean gradient. Running statistics have no control and are
averaged. With controls off only models are sent, and averaged equally.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from search_spaces.parameter import flag, real
from trainables.building_blocks.losses import added
from trainables.building_blocks.server_optimiser import towards, weights
from trainables.federation import ClientData, Federation
from trainables.local import LocalJob, LocalResult, LocalTraining, Objective
from trainables.method import Limit, Method
from trainables.methods import fedavg
from trainables.params import average, pack, unpack
from trainables.rng import Rng
from trainables.wire import ClientResult, Params, Payload, Upload


@dataclass(frozen=True)
class Config(LocalTraining):
    """Local training, the controls, and the server's rate."""

    server_lr: float = real(
        1.0,
        low=1e-6,
        high=100.0,
        log=True,
        symbol="η_g",
        doc="Learning rate of the server; 1 replaces the model by the average.",
        source="SCAFFOLD Alg. 1",
        tune=(0.1, 3.0),
    )
    controls: bool = flag(True, doc="Correct the clients' gradients; off sends models alone.", source="SCAFFOLD Sec. 4")


@dataclass(frozen=True)
class State:
    """The global model `w` and the control `c` of its weights (empty where controls are off)."""

    model: Params
    control: Params


@dataclass(frozen=True)
class ClientState:
    """A client's control `c_i`."""

    control: Params


def init(config: Config, fed: Federation, rng: Rng) -> State:
    """FedAvg's initial model and c = 0."""
    model = fed.initial_params()
    return State(model, {name: torch.zeros_like(model[name]) for name in weights(model)} if config.controls else {})


def download(config: Config, fed: Federation, state: State, client: int) -> Payload:
    """w and c."""
    return pack("model", state.model) | pack("control", state.control)


def job(
    config: Config, fed: Federation, payload: Payload, client_state: ClientState | None, data: ClientData, rng: Rng
) -> LocalJob:
    """Trains the received model with corrected gradients; uploads it with the change of c_i."""
    module, received, common = fed.network(), unpack("model", payload), unpack("control", payload)
    if not config.controls:
        return LocalJob(module, received, fedavg.returned)
    own = client_state.control if client_state is not None else {n: torch.zeros_like(c) for n, c in common.items()}
    correction = [common[name] - own[name] for name, _ in module.named_parameters()]

    def finish(model: Params, trained: LocalResult) -> ClientResult:
        control = new_control(own, common, received, model, len(trained.drawn) * config.lr)
        changed = {name: control[name] - own[name] for name in own}
        return ClientResult(
            upload=pack("model", model) | pack("control", changed),
            client_state=ClientState(control),
            model=model,
            loss=trained.loss,
        )

    return LocalJob(module, received, finish, corrected_cross_entropy, (correction,))


def corrected_cross_entropy(correction: Sequence[Tensor]) -> Objective:
    """The cross-entropy, of which every gradient has `c - c_i` added: parameters and `correction` paired in order."""

    def objective(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return added(F.cross_entropy(module(x), y), list(module.parameters()), correction)

    return objective


def new_control(own: Params, common: Params, received: Params, trained: Params, length: float) -> Params:
    """`c_i⁺ = c_i - c + (w - w_i) / (K η)`; `length` is K η."""
    return {name: own[name] - common[name] + (received[name] - trained[name]) / length for name in own}


def server(config: Config, fed: Federation, state: State, uploads: Sequence[Upload], rng: Rng) -> State:
    """One step to the clients' unweighted average, and the mean of the controls over all N clients."""
    mean = average((u.payload, 1.0) for u in uploads)
    changes, share = unpack("control", mean), len(uploads) / fed.clients
    return State(
        towards(state.model, unpack("model", mean), config.server_lr),
        {name: c + share * changes[name] for name, c in state.control.items()},
    )


METHOD = Method(
    name="scaffold",
    title="SCAFFOLD",
    reference="Karimireddy et al., ICML 2020",
    family="one global model",
    Config=Config,
    State=State,
    ClientState=ClientState,
    init=init,
    download=download,
    job=job,
    server=server,
    one_pass=True,
    limits=(Limit({"controls": False, "active_clients": 1}, equals="fedavg", other={"active_clients": 1}),),
)
