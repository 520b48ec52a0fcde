"""Ditto: a personal model beside the global one, held near it.

Li, Hu, Beirami, Smith: Ditto: Fair and Robust Federated Learning Through Personalization, ICML 2021, Algorithm 1.

    client   w_i ← w;  I_c times:  w_i ← w_i - η ∇ CE(f(x; w_i), y)                        the global track
             I_c times:            v_i ← v_i - η ∇ [ CE(f(x; v_i), y) + λ/2 ‖v_i - w‖² ]   the personal track
    server   w ← Σ_i n_i w_i / Σ_i n_i                       over the round's clients

    v_i   client i's personal model, kept from round to round and never sent; its accuracy is the local one, that of w_i
          is recorded as shared_local_accuracy
    w     global model, as received      λ   lambda      η   lr      I_c   local_steps

Personal models start from the federation's common initial model. With λ = 0 they are Local Training's. The loss that is
recorded is the personal one.

Differs from the paper: both tracks make the same number of steps, on the same batches (s = I_c; the paper and PFLlib
draw them apart, which changes no equation). There is no length of the personal track's own, which PFLlib has
(plocal_epochs): one of its epochs, its default, is what local_epochs: 1 makes here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from search_spaces.parameter import real
from trainables.federation import ClientData, Federation
from trainables.local import LocalJob, LocalResult, LocalTraining, Objective, client_of
from trainables.method import Limit, Method
from trainables.methods import fedavg
from trainables.methods.fedprox import squared_distance
from trainables.params import pack, unpack
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
    """Trains the received model and, held near what was received, the personal one."""
    module, received = pair(fed), unpack("model", payload)
    own = client_state.model if client_state is not None else fed.initial_params()
    start = {f"{SHARED}.{name}": w for name, w in received.items()} | {f"{OWN}.{name}": v for name, v in own.items()}
    anchor = [received[name] for name, _ in module.own.named_parameters()]
    return LocalJob(module, start, _shared_and_kept, partial(both_tracks, config.lambda_), (anchor,))


client = client_of(job)


def _shared_and_kept(model: Params, trained: LocalResult) -> ClientResult:
    """w_i is uploaded, v_i stays."""
    shared, own = (
        {name.removeprefix(f"{track}."): tensor for name, tensor in model.items() if name.startswith(f"{track}.")}
        for track in (SHARED, OWN)
    )
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


def both_tracks(lambda_: float, anchor: Sequence[Tensor]) -> Objective:
    """The cross-entropy of a `Pair`'s shared model, and the personal track's loss of its own one, whose
    value it has."""

    def objective(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        assert isinstance(module, Pair)
        shared = F.cross_entropy(module.shared(x), y)
        own = F.cross_entropy(module.own(x), y)
        if lambda_ > 0:
            own = own + lambda_ / 2 * squared_distance(module.own.parameters(), anchor)
        return own + (shared - shared.detach())

    return objective


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
    server=fedavg.server,
    global_model=fedavg.global_model,
    other_networks={SHARED: shared_network},
    limits=(Limit({"lambda": 0}, equals="local"),),
)
