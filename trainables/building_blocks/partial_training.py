"""Partial training: clients train width-scaled sub-models of one global model.

HeteroFL, Federated Dropout and FedRolex are made by `partial_training`. They differ in which channels a client trains,
which is `channels` in each method's file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from search_spaces.parameter import choice, flag
from trainables.building_blocks import submodels
from trainables.building_blocks.submodels import Channels, Part
from trainables.federation import ClientData, Federation
from trainables.local import LocalJob, LocalResult, LocalTraining, Objective
from trainables.method import Limit, Method
from trainables.models import Model
from trainables.params import pack, unpack
from trainables.rng import Rng
from trainables.wire import ClientResult, Params, Payload, Upload


@dataclass(frozen=True)
class PartialTraining(LocalTraining):
    """Local training plus the switches of width-based partial training."""

    scaler: bool = flag(True, doc="Clients multiply convolution outputs by 1/R while training.", source="HeteroFL code")
    masked_ce: bool = flag(
        False,
        doc="Logits of classes the client does not hold are set to 0 before the cross-entropy.",
        source="HeteroFL code",
    )
    agg_weight: str = choice(
        "samples",
        ("samples", "uniform"),
        symbol="p_i",
        doc="Weight of a client in the average of an entry.",
        source="DFRD Eq. 1",
    )
    own_class_rows_only: bool = flag(
        False, doc="A class's row of the last layer is averaged over clients that hold the class.", source="DFRD code"
    )


@dataclass(frozen=True)
class State:
    """The global model after `round` rounds."""

    round: int
    model: Params


def init(config: PartialTraining, fed: Federation, rng: Rng) -> State:
    """Draws the initial full-width model."""
    return State(0, fed.initial_params())


def client_module(config: PartialTraining, fed: Federation, client: int) -> Model:
    """The module that client trains in; its weights are to be loaded with `params.put`."""
    return fed.network(fed.widths[client], scaler=config.scaler)


def submodel_job(
    config: PartialTraining,
    fed: Federation,
    model: Params,
    data: ClientData,
    finish: Callable[[Params, LocalResult], ClientResult],
) -> LocalJob:
    """Trains the client's sub-model from `model` on its data."""
    module = client_module(config, fed, data.client)
    if config.masked_ce:
        return LocalJob(module, model, finish, masked_cross_entropy, (data.label_counts() > 0,))
    return LocalJob(module, model, finish)


def returned(config: PartialTraining, data: ClientData) -> Callable[[Params, LocalResult], ClientResult]:
    """What is made of the trained sub-model: it is uploaded, for own_class_rows_only with the classes that the client
    holds."""

    def finish(model: Params, trained: LocalResult) -> ClientResult:
        return ClientResult(upload=pack("model", model) | owned_classes(config, data), model=model, loss=trained.loss)

    return finish


def owned_classes(config: PartialTraining, data: ClientData) -> Payload:
    """The entry `owned`, boolean `(C,)`: which classes the client holds. Nothing unless own_class_rows_only asks for
    it."""
    return {"owned": data.label_counts() > 0} if config.own_class_rows_only else {}


def aggregate(
    config: PartialTraining,
    fed: Federation,
    model: Params,
    uploads: Sequence[Upload],
    channels: Callable[[int], Channels],
) -> Params:
    """Eq. (1): the global model `model` with the round's sub-models put back into it. `channels` gives those of a
    client. Goes over the uploads once."""

    def part(upload: Upload) -> Part:
        weight = float(fed.sizes[upload.client]) if config.agg_weight == "samples" else 1.0
        owned = upload.payload["owned"] if config.own_class_rows_only else None
        return Part(channels(upload.client), unpack("model", upload.payload), weight, owned)

    return submodels.merge(fed, model, map(part, uploads))


def masked_cross_entropy(held: Tensor) -> Objective:
    """Cross-entropy with the logits of classes that are not `held` (boolean `(C,)`) set to 0 (HeteroFL's code)."""

    def objective(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        logits = module(x)
        return F.cross_entropy(torch.where(held.to(logits.device), logits, 0.0), y)

    return objective


def partial_training(
    name: str,
    title: str,
    reference: str,
    channels: Callable[[Any, Federation, int, int], Channels],
    Config: type[PartialTraining] = PartialTraining,
) -> Method:
    """The method whose clients train the `channels` K_i,t that are a function of (config, fed, round t = 1, 2, …,
    client)."""

    def download(config: PartialTraining, fed: Federation, state: State, client: int) -> Payload:
        """θ[K_i,t]: the client's sub-model of the coming round."""
        chosen = channels(config, fed, state.round + 1, client)
        return pack("model", submodels.extract(fed, state.model, chosen))

    def job(
        config: PartialTraining, fed: Federation, payload: Payload, client_state: None, data: ClientData, rng: Rng
    ) -> LocalJob:
        """Trains the received sub-model and returns it."""
        return submodel_job(config, fed, unpack("model", payload), data, returned(config, data))

    def server(config: PartialTraining, fed: Federation, state: State, uploads: Sequence[Upload], rng: Rng) -> State:
        """Averages every entry of θ over the clients that held it."""
        now = state.round + 1
        return State(
            now, aggregate(config, fed, state.model, uploads, lambda client: channels(config, fed, now, client))
        )

    return Method(
        name=name,
        title=title,
        reference=reference,
        family="partial training",
        Config=Config,
        State=State,
        init=init,
        download=download,
        job=job,
        server=server,
        one_pass=True,
        widths="any",
        limits=(Limit({"rho": 0}, equals="fedavg"),),
    )
