"""Sharing one part of the model: clients send the part that is shared and keep the other (FedPer and LG-FedAvg).

The two methods differ in one word, which part is shared. A model is its `features` (everything below the head) and its
`head`; a parameter belongs to the head when its name begins with `head.`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from trainables.federation import ClientData, Federation
from trainables.local import LocalTraining, train
from trainables.method import ClientResult, Limit, Method, Params, Payload, Upload
from trainables.params import average, pack, put, take, unpack
from trainables.rng import Rng

Part = Literal["features", "head"]


@dataclass(frozen=True)
class State:
    """The shared part after `round` rounds."""

    round: int
    shared: Params


@dataclass(frozen=True)
class Memory:
    """The part a client keeps to itself."""

    private: Params


def part_of(name: str) -> Part:
    """The part that the parameter `name` belongs to."""
    return "head" if name.startswith("head.") else "features"


def only(part: Part, params: Params) -> Params:
    """The parameters of that part, by their full names."""
    return {name: tensor for name, tensor in params.items() if part_of(name) == part}


def _init(part: Part) -> Callable[..., State]:
    def init(config: LocalTraining, fed: Federation, rng: Rng) -> State:
        """The shared part of the initial model."""
        return State(0, only(part, fed.initial_params()))

    return init


def download(config: LocalTraining, fed: Federation, state: State, client: int) -> Payload:
    """The shared part."""
    return pack("model", state.shared)


def _client(part: Part) -> Callable[..., ClientResult]:
    private: Part = "features" if part == "head" else "head"

    def client(config: LocalTraining, fed: Federation, payload: Payload, memory: Memory | None, data: ClientData, rng: Rng) -> ClientResult:
        """Trains both parts together, returns the shared one and keeps the other."""
        own = memory.private if memory is not None else only(private, fed.initial_params())
        module = fed.network()
        put(module, unpack("model", payload) | own)
        work = train(config, module, data, rng)
        model = take(module)
        return ClientResult(upload=pack("model", only(part, model)), memory=Memory(only(private, model)), model=model, loss=work.loss)

    return client


def server(config: LocalTraining, fed: Federation, state: State, uploads: Sequence[Upload], rng: Rng) -> State:
    """The average of the shared parts, weighted by client sizes."""
    return State(state.round + 1, average((unpack("model", u.payload), fed.sizes[u.client]) for u in uploads))


def global_model(config: LocalTraining, fed: Federation, state: State) -> None:
    """There is none: no party ever holds all parts of one."""


def sharing_method(part: Part, Config: type, **record: Any) -> Method:
    """The method record of sharing `part`."""
    return Method(Config=Config, State=State, Memory=Memory, init=_init(part), download=download, client=_client(part), server=server,
                  global_model=global_model, virtual=True, limits=(Limit({"clients": 1}, equals="local", other={"clients": 1}),), **record)
