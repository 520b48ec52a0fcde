"""Sharing one part of the model: clients send the part that is shared and keep the other (FedPer and LG-FedAvg).

The two methods differ in one word, which part is shared: the `features` (everything below the head) or the `head`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from trainables.building_blocks.split_model import body_of, head_of
from trainables.federation import ClientData, Federation
from trainables.local import JobOf, LocalJob, LocalResult, LocalTraining, client_of
from trainables.method import Limit, Method, no_global_model
from trainables.params import average, pack, unpack
from trainables.rng import Rng
from trainables.wire import ClientResult, Params, Payload, Upload

Part = Literal["features", "head"]
_CUT: dict[Part, Callable[[Params], Params]] = {"features": body_of, "head": head_of}


@dataclass(frozen=True)
class State:
    """The shared part after `round` rounds."""

    round: int
    shared: Params


@dataclass(frozen=True)
class ClientState:
    """The part a client keeps to itself."""

    private: Params


def _init(part: Part) -> Callable[..., State]:
    def init(config: LocalTraining, fed: Federation, rng: Rng) -> State:
        """The shared part of the initial model."""
        return State(0, _CUT[part](fed.initial_params()))

    return init


def download(config: LocalTraining, fed: Federation, state: State, client: int) -> Payload:
    """The shared part."""
    return pack("model", state.shared)


def _job(part: Part) -> JobOf:
    private: Part = "features" if part == "head" else "head"

    def job(config: LocalTraining, fed: Federation, payload: Payload, client_state: ClientState | None, data: ClientData, rng: Rng) -> LocalJob:
        """Trains both parts together, returns the shared one and keeps the other."""
        own = client_state.private if client_state is not None else _CUT[private](fed.initial_params())
        return LocalJob(fed.network(), unpack("model", payload) | own, finish)

    def finish(model: Params, trained: LocalResult) -> ClientResult:
        return ClientResult(upload=pack("model", _CUT[part](model)), client_state=ClientState(_CUT[private](model)), model=model, loss=trained.loss)

    return job


def server(config: LocalTraining, fed: Federation, state: State, uploads: Sequence[Upload], rng: Rng) -> State:
    """The average of the shared parts, weighted by client sizes."""
    return State(state.round + 1, average((unpack("model", u.payload), fed.sizes[u.client]) for u in uploads))


def sharing_method(part: Part, Config: type, **record: Any) -> Method:
    """The method record of sharing `part`."""
    return Method(Config=Config, State=State, ClientState=ClientState, init=_init(part), download=download, client=client_of(_job(part)), job=_job(part),
                  server=server,
                  global_model=no_global_model, virtual=True, limits=(Limit({"clients": 1}, equals="local", other={"clients": 1}),), **record)
