"""Ditto: a personal model beside the global one, held near it.

Li, Hu, Beirami, Smith: Ditto: Fair and Robust Federated Learning Through Personalization, ICML 2021, Algorithm 1.

    client   w_i ← w;  I_c times:  w_i ← w_i - η ∇ CE(f(x; w_i), y)                        the global track
             s times:              v_i ← v_i - η ∇ [ CE(f(x; v_i), y) + λ/2 ‖v_i - w‖² ]   the personal track
    server   w ← Σ_i n_i w_i / Σ_i n_i                       over the round's clients

    v_i   client i's personal model, kept from round to round and never sent; its accuracy is the local one, that of w_i
          is recorded as shared_local_accuracy
    w     global model, as received      λ   lambda      η   lr      I_c   local_steps
    s     personal_epochs passes over the client's data; I_c where that is 0

Personal models start from the federation's common initial model. With λ = 0 they are Local Training's. The loss that is
recorded is the personal one.

Differs from the paper: the server weighs clients by size, as in PFLlib (the authors' code: equally). Both tracks train
on the same batches, as in the authors' code, and where one is longer its first batches are the other's (PFLlib draws
them apart, which changes no equation). By default both make the same number of steps, as in that code; PFLlib's
plocal_epochs are personal_epochs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from search_spaces.parameter import integer, real
from trainables.federation import ClientData, Federation
from trainables.local import LocalJob, LocalResult, LocalTraining, Objective, client_of, cross_entropy, train
from trainables.method import Limit, Method
from trainables.methods import fedavg
from trainables.methods.fedprox import proximal_cross_entropy
from trainables.params import pack, put, take, unpack
from trainables.rng import Rng
from trainables.wire import ClientResult, Params, Payload

#: The two tracks in the names of a pair's parameters.
SHARED, OWN = "shared", "own"


@dataclass(frozen=True)
class Config(LocalTraining):
    """Local training and how near the personal model stays."""

    lambda_: float = real(
        1.0,
        low=0.0,
        high=1000.0,
        log=True,
        symbol="λ",
        doc="Weight of the personal model's distance to the global one.",
        source="Ditto Alg. 1; its code",
        tune=(1e-2, 10.0),
    )
    personal_epochs: int = integer(
        0,
        low=0,
        high=1000,
        symbol="s",
        doc="Passes of the personal track over the client's data per round; 0 makes the steps of the global one.",
        source="Ditto Alg. 1; PFLlib",
    )


@dataclass(frozen=True)
class ClientState:
    """A client's personal model `v_i`."""

    model: Params


class Pair(nn.Module):
    """Two models that are trained in one pass over the batches; nothing passes between them."""

    def __init__(self, shared: nn.Module, own: nn.Module) -> None:
        super().__init__()
        self.shared, self.own = shared, own


def pair(fed: Federation) -> Pair:
    """The two tracks' modules."""
    return fed.cached("Ditto's pair", lambda: Pair(fed.network(role="shared"), fed.network(role="own")))


def job(
    config: Config, fed: Federation, payload: Payload, client_state: ClientState | None, data: ClientData, rng: Rng
) -> LocalJob:
    """Trains the received model and, held near what was received, the personal one, both in one pass."""
    module, received = pair(fed), unpack("model", payload)
    own = _personal(fed, client_state)
    start = {f"{SHARED}.{name}": w for name, w in received.items()} | {f"{OWN}.{name}": v for name, v in own.items()}
    return LocalJob(module, start, _shared_and_kept, partial(both_tracks, config.lambda_), (anchor(module, received),))


def equally_long(config: Config) -> bool:
    """Whether both tracks make the same steps, so that a client is one training job."""
    return config.personal_epochs == 0


def client(
    config: Config, fed: Federation, payload: Payload, client_state: ClientState | None, data: ClientData, rng: Rng
) -> ClientResult:
    """Trains both models: in one pass over the batches, or one after the other where their lengths differ."""
    if equally_long(config):
        return client_of(job)(config, fed, payload, client_state, data, rng)
    module, received = pair(fed), unpack("model", payload)
    put(module.shared, received)
    put(module.own, _personal(fed, client_state))
    train(config, module.shared, data, rng)
    length = replace(config, local_epochs=config.personal_epochs)
    trained = train(length, module.own, data, rng, near(config.lambda_, anchor(module, received)))
    return _uploaded_and_kept(take(module.shared), take(module.own), trained)


def anchor(module: Pair, received: Params) -> list[Tensor]:
    """What the personal model is held near, in the order of its parameters."""
    return [received[name] for name, _ in module.own.named_parameters()]


def _personal(fed: Federation, client_state: ClientState | None) -> Params:
    return client_state.model if client_state is not None else fed.initial_params()


def _shared_and_kept(model: Params, trained: LocalResult) -> ClientResult:
    """The two models of a trained `Pair`."""
    shared, own = (
        {name.removeprefix(f"{track}."): tensor for name, tensor in model.items() if name.startswith(f"{track}.")}
        for track in (SHARED, OWN)
    )
    return _uploaded_and_kept(shared, own, trained)


def _uploaded_and_kept(shared: Params, own: Params, trained: LocalResult) -> ClientResult:
    """w_i is uploaded, v_i stays."""
    return ClientResult(
        upload=pack("model", shared),
        client_state=ClientState(own),
        model=own,
        others={SHARED: shared},
        loss=trained.loss,
    )


def shared_network(config: Config, fed: Federation, client: int) -> nn.Module:
    """The module of a client's model on the global track."""
    return fed.network(role=SHARED)


def both_tracks(lambda_: float, held: Sequence[Tensor]) -> Objective:
    """The cross-entropy of a `Pair`'s shared model, and the personal track's loss of its own one, whose
    value it has."""

    personal = near(lambda_, held)

    def objective(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        assert isinstance(module, Pair)
        shared = F.cross_entropy(module.shared(x), y)
        return personal(module.own, x, y) + (shared - shared.detach())

    return objective


def near(lambda_: float, held: Sequence[Tensor]) -> Objective:
    """The loss of the personal track: the cross-entropy, and λ/2 times the squared distance from `held`."""
    return proximal_cross_entropy(lambda_, held) if lambda_ > 0 else cross_entropy


METHOD = Method(
    name="ditto",
    title="Ditto",
    reference="Li et al., ICML 2021",
    family="personalised",
    Config=Config,
    State=fedavg.State,
    ClientState=ClientState,
    init=fedavg.init,
    download=fedavg.download,
    client=client,
    job=job,
    job_applies=equally_long,
    server=fedavg.server,
    one_pass=True,
    other_networks={SHARED: shared_network},
    limits=(
        Limit({"lambda": 0}, equals="local"),
        Limit({"personal_epochs": 2, "local_epochs": 2}, equals="ditto", other={"local_epochs": 2}),
        Limit({"lambda": 0, "personal_epochs": 2}, equals="local", other={"local_epochs": 2}),
    ),
)
