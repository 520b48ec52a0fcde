"""Partial training: clients train width-scaled sub-models of one global model.

HeteroFL, Federated Dropout and FedRolex share what is here. They differ in which channels a client trains, which is
`channels` in each method's file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from search_spaces.parameter import choice, flag
from trainables.building_blocks import submodels
from trainables.building_blocks.submodels import Channels
from trainables.federation import ClientData, Federation
from trainables.local import LocalJob, LocalResult, LocalTraining, Objective
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
    config: PartialTraining, fed: Federation, model: Params, uploads: Sequence[Upload], chosen: Sequence[Channels]
) -> Params:
    """Eq. (1): the global model `model` with the round's sub-models put back into it. `chosen` are the channels of each
    upload."""
    parts = [
        (channels, unpack("model", u.payload), float(fed.sizes[u.client]) if config.agg_weight == "samples" else 1.0)
        for u, channels in zip(uploads, chosen, strict=True)
    ]
    return submodels.merge(
        fed, model, parts, [u.payload["owned"] for u in uploads] if config.own_class_rows_only else None
    )


def global_model(config: PartialTraining, fed: Federation, state: State) -> Params:
    """The full-width model."""
    return state.model


def masked_cross_entropy(held: Tensor) -> Objective:
    """Cross-entropy with the logits of classes that are not `held` (boolean `(C,)`) set to 0 (HeteroFL's code)."""

    def objective(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        logits = module(x)
        return F.cross_entropy(torch.where(held.to(logits.device), logits, 0.0), y)

    return objective
