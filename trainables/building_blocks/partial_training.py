"""Partial training: clients train width-scaled sub-models of one global model (shared by HeteroFL, Federated Dropout, FedRolex).

The three methods differ in one word, how channels are chosen; see `trainables.building_blocks.submodels.channels`.
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
from trainables.federation import ClientData, Federation
from trainables.local import LocalJob, LocalResult, LocalTraining, Objective, client_of
from trainables.method import Method
from trainables.models import Model
from trainables.params import pack, unpack
from trainables.rng import Rng
from trainables.wire import ClientResult, Params, Payload, Upload


@dataclass(frozen=True)
class PartialTraining(LocalTraining):
    """Local training plus the switches of width-based partial training."""

    scaler: bool = flag(True, doc="Clients multiply convolution outputs by 1/R while training.", source="HeteroFL code")
    masked_ce: bool = flag(False, doc="Logits of classes the client does not hold are set to 0 before the cross-entropy.", source="HeteroFL code")
    agg_weight: str = choice("samples", ("samples", "uniform"), symbol="p_i", doc="Weight of a client in the average of an entry.", source="DFRD Eq. 1")
    own_class_rows_only: bool = flag(False, doc="A class's row of the last layer is averaged over clients that hold the class.", source="DFRD code")


@dataclass(frozen=True)
class State:
    """The global model after `round` rounds."""

    round: int
    model: Params


def init(config: PartialTraining, fed: Federation, rng: Rng) -> State:
    """Draws the initial full-width model."""
    return State(0, fed.initial_params())


def download_with(extraction: str) -> Callable[..., Payload]:
    """The download of one extraction: the client's sub-model of the coming round."""

    def download(config: PartialTraining, fed: Federation, state: State, client: int) -> Payload:
        return pack("model", submodels.extract(fed, state.model, submodels.channels(fed, extraction, state.round + 1, client)))

    return download


def client_module(config: PartialTraining, fed: Federation, client: int) -> Model:
    """The module that client trains in; its weights are to be loaded with `params.put`."""
    return fed.network(fed.widths[client], scaler=config.scaler)


def submodel_job(config: PartialTraining, fed: Federation, model: Params, data: ClientData,
                 finish: Callable[[Params, LocalResult], ClientResult]) -> LocalJob:
    """Trains the client's sub-model from `model` on its data."""
    module = client_module(config, fed, data.client)
    if config.masked_ce:
        return LocalJob(module, model, finish, masked_cross_entropy, (data.label_counts() > 0,))
    return LocalJob(module, model, finish)


def job(config: PartialTraining, fed: Federation, payload: Payload, client_state: None, data: ClientData, rng: Rng) -> LocalJob:
    """Trains the received sub-model and returns it (and, for own_class_rows_only, which classes the client holds)."""

    def finish(model: Params, trained: LocalResult) -> ClientResult:
        owned = {"owned": data.label_counts() > 0} if config.own_class_rows_only else {}
        return ClientResult(upload=pack("model", model) | owned, model=model, loss=trained.loss)

    return submodel_job(config, fed, unpack("model", payload), data, finish)


client = client_of(job)


def aggregate(config: PartialTraining, fed: Federation, extraction: str, round_: int, model: Params, uploads: Sequence[Upload]) -> Params:
    """Eq. (1) over the round's uploads."""
    parts = [(submodels.channels(fed, extraction, round_, u.client), unpack("model", u.payload),
              float(fed.sizes[u.client]) if config.agg_weight == "samples" else 1.0) for u in uploads]
    return submodels.merge(fed, model, parts, [u.payload["owned"] for u in uploads] if config.own_class_rows_only else None)


def server_with(extraction: str) -> Callable[..., State]:
    """The server step of one extraction."""

    def server(config: PartialTraining, fed: Federation, state: State, uploads: Sequence[Upload], rng: Rng) -> State:
        return State(state.round + 1, aggregate(config, fed, extraction, state.round + 1, state.model, uploads))

    return server


def global_model(config: PartialTraining, fed: Federation, state: State) -> Params:
    """The full-width model."""
    return state.model


def masked_cross_entropy(held: Tensor) -> Objective:
    """Cross-entropy with the logits of classes that are not `held` (boolean `(C,)`) set to 0 (HeteroFL's code)."""

    def objective(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        logits = module(x)
        return F.cross_entropy(torch.where(held.to(logits.device), logits, 0.0), y)

    return objective


def partial_method(extraction: str, Config: type, **record: Any) -> Method:
    """The method record of one extraction."""
    return Method(Config=Config, State=State, init=init, download=download_with(extraction), client=client, job=job, server=server_with(extraction),
                  global_model=global_model, widths="any", **record)
