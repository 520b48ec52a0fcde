"""What server-side distillation builds on: a base, and the clients' label counts (shared by DFRD, FedFTG and DENSE).

A base makes the preliminary global model of a round: `fedavg`, or `heterofl`, `feddropout`, `fedrolex` with their
sub-models. In data-free mode (`none`) nothing is aggregated: clients receive a model once, keep theirs and train on,
and the global model is made by distillation alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from search_spaces.errors import sentence
from search_spaces.parameter import choice, integer
from trainables.building_blocks import partial_training
from trainables.building_blocks.server_distillation import (
    LabelDistribution,
    ServerDistillation,
    generator_module,
    label_distribution,
)
from trainables.building_blocks.submodels import Channels
from trainables.federation import ClientData, Federation, FederationConfig
from trainables.generators.image import initialise
from trainables.local import LocalJob, LocalResult
from trainables.method import Limit
from trainables.params import pack, take
from trainables.rng import Rng
from trainables.wire import ClientResult, Params, Upload

BASES = ("fedavg", "heterofl", "feddropout", "fedrolex", "none")

#: `(fed, round, client) -> channels`, with rounds 1, 2, …: the channels of the global model that a client trains.
ChannelRule = Callable[[Federation, int, int], Channels]

#: Without server steps a method on a base is that base.
WITHOUT_SERVER_STEPS = (
    Limit({"server_iters": 0, "base": "fedavg"}, equals="fedavg"),
    *(
        Limit({"server_iters": 0, "base": base, "rho": 5}, equals=base, other={"rho": 5})
        for base in ("heterofl", "feddropout", "fedrolex")
    ),
)


@dataclass(frozen=True)
class DistillationBase(partial_training.PartialTraining):
    """The base and its own settings."""

    base: str = choice(
        "fedavg", BASES, doc="What makes the preliminary global model; none: data-free mode.", source="DFRD Tables 1, 2"
    )


@dataclass(frozen=True)
class LabelCounting:
    """Which of a client's samples are counted per class: n_i^y behind τ and p(y)."""

    label_weighting: str = choice(
        "dynamic",
        ("average", "static", "dynamic"),
        symbol="τ",
        doc="Counts behind τ and p(y).",
        source="DFRD Table 10",
        tune=True,
    )
    label_smoothing_count: int = integer(
        0, low=0, high=1000, doc="Added to every class's count; the releases add 1.", source="DFRD code"
    )
    counter_window: str = choice(
        "round",
        ("round", "cumulative"),
        doc="Dynamic counts: this round's draws, or all draws so far.",
        source="DFRD code",
    )


@dataclass(frozen=True)
class State:
    """Global model θ and generator w (label embedding included) after `round` rounds."""

    round: int
    model: Params
    generator: Params


class HasModel(Protocol):
    """Any state with a round and a full-width global model."""

    @property
    def round(self) -> int: ...

    @property
    def model(self) -> Params: ...


@dataclass(frozen=True)
class ClientState:
    """What a client keeps: its model in data-free mode, the samples drawn so far for cumulative counts `(n,)`."""

    model: Params | None
    seen: Tensor | None


def check(config: DistillationBase, federation: FederationConfig) -> list[str]:
    """FedAvg as a base needs clients of equal width."""
    if config.base == "fedavg" and federation.rho > 0:
        return [
            sentence(
                "rho",
                "0 when base is fedavg, whose clients all train the same model",
                federation.rho,
                fix="Use --set base=fedrolex, heterofl or feddropout.",
            )
        ]
    return []


def initial_generator(config: ServerDistillation, fed: Federation) -> Params:
    """The generator's first weights; the same for every method of one seed that makes the same generator."""
    module = generator_module(config, fed, "G")
    initialise(module, fed.rng.torch("init", "generator"))
    return take(module)


def init(config: ServerDistillation, fed: Federation, rng: Rng) -> State:
    """Draws the model (the base's own initial model) and the generator."""
    return State(0, fed.initial_params(), initial_generator(config, fed))


def base_job(
    config: DistillationBase,
    fed: Federation,
    received: Params,
    client_state: ClientState | None,
    data: ClientData,
    counting: LabelCounting | None = None,
) -> LocalJob:
    """The base's local training from the model `received`; uploads the model and, with `counting`, the label counts
    `(C,)`.

    In data-free mode nothing is received after the first round, and the client goes on training its own model."""

    def finish(model: Params, trained: LocalResult) -> ClientResult:
        before = client_state.seen if client_state is not None else None
        counts, seen = label_counts(counting, data, trained, before) if counting is not None else (None, None)
        kept = ClientState(model if config.base == "none" else None, seen)
        return ClientResult(
            upload=pack("model", model)
            | ({} if counts is None else {"label_counts": counts})
            | partial_training.owned_classes(config, data),
            client_state=kept if kept != ClientState(None, None) else None,
            model=model,
            loss=trained.loss,
        )

    return partial_training.submodel_job(
        config, fed, received or _own_model(fed, client_state, data.client), data, finish
    )


def _own_model(fed: Federation, client_state: ClientState | None, client: int) -> Params:
    """The model that a client of data-free mode keeps. One whose first round comes later is never sent any: it draws
    its own."""
    own = client_state.model if client_state is not None else None
    return own if own is not None else fed.initial_params("late", client, width=fed.widths[client])


def label_counts(
    config: LabelCounting, data: ClientData, trained: LocalResult, before: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """n_i^y `(C,)` of the configured weighting (None: not counted), and the mask `(n,)` of samples drawn so far (None
    unless the window is cumulative). `before` is that mask after the client's last round."""
    if config.label_weighting == "average":
        return None, None
    if config.label_weighting == "static":
        return data.label_counts() + config.label_smoothing_count, None
    seen = torch.zeros(len(data), dtype=torch.bool)
    if config.counter_window == "cumulative" and before is not None:
        seen = before.to(seen.device, copy=True)  # a state from a checkpoint lies on the federation's device
    seen[trained.drawn.flatten()] = True
    counts = torch.bincount(data.y[seen], minlength=data.classes) + config.label_smoothing_count
    return counts, seen if config.counter_window == "cumulative" else None


def preliminary(
    config: DistillationBase, fed: Federation, state: HasModel, uploads: Sequence[Upload], channels: ChannelRule
) -> Params:
    """The global model before distillation: the base's aggregate of the uploads, each of which holds the `channels` of
    its client; in data-free mode the last round's global model."""
    if config.base == "none":
        return state.model
    now = state.round + 1
    return partial_training.aggregate(config, fed, state.model, uploads, lambda client: channels(fed, now, client))


def label_distribution_of(fed: Federation, uploads: Sequence[Upload]) -> LabelDistribution:
    """τ and p(y) from the uploaded label counts; all equal where none were uploaded."""
    counts = [u.payload["label_counts"] for u in uploads if "label_counts" in u.payload]
    return label_distribution(torch.stack(counts) if counts else None, len(uploads), fed.classes)
