"""Models in two halves, an extractor F (`features`) and a classifier D (`head`), and generators of F's output.

    f(x) = D(F(x))        parameters of D are the ones whose names start with `head.`
    g = G(z, y)           z noise (B, d), labels y (B,)  ->  features (B, p), the same space as F(x)

FedPer and LG-FedAvg share one half (`half_shared`); FedCG, FedGen and FedMD-CG share D and a generator that replaces F.

The generator of FedMD-CG is [z, onehot(y)] → 512 → BatchNorm → ReLU → 256 → BatchNorm → ReLU → p; FedGen's
has one hidden layer. Its BatchNorm keeps running statistics, so that a frozen generator makes the same features
whatever else is in the batch, and an average of generators averages them too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from trainables import models
from trainables.federation import ClientData, Federation
from trainables.generators.feature import FeatureGenerator, initialise
from trainables.local import LocalJob, LocalResult
from trainables.method import Limit, Method, no_global_model
from trainables.params import average, pack, put, take, unpack
from trainables.rng import Rng
from trainables.wire import ClientResult, Params, Payload, Upload

#: Prefix of the classifier's parameters in a model's.
HEAD = "head."


def head_of(params: Mapping[str, Tensor]) -> Params:
    """The classifier's part of a model's parameters, names unchanged."""
    return {name: tensor for name, tensor in params.items() if name.startswith(HEAD)}


def body_of(params: Mapping[str, Tensor]) -> Params:
    """The extractor's part of a model's parameters, names unchanged."""
    return {name: tensor for name, tensor in params.items() if not name.startswith(HEAD)}


def head_module(fed: Federation, role: str) -> nn.Module:
    """The classifier D of the federation's architecture alone, to be loaded with `put_head` before use."""
    return fed.cached(("head", role), lambda: fed.built(fed.model).head)


def put_head(head: nn.Module, params: Mapping[str, Tensor]) -> None:
    """Copies the classifier's parameters (`head.…`; others are ignored) into a module made by `head_module`."""
    put(head, {name.removeprefix(HEAD): tensor for name, tensor in head_of(params).items()})


def take_head(head: nn.Module) -> Params:
    """A copy of a classifier's parameters, named as in the whole model."""
    return {HEAD + name: tensor for name, tensor in take(head).items()}


def feature_generator(
    fed: Federation, role: str, noise_dim: int, hidden: tuple[int, ...] = (512, 256)
) -> FeatureGenerator:
    """The generator module named `role` for the federation's features; its weights are to be loaded with
    `params.put`."""
    return fed.cached(
        ("feature generator", role, noise_dim, hidden),
        lambda: FeatureGenerator(fed.network().feature_width, fed.classes, noise_dim, hidden),
    )


def initial_generator(fed: Federation, noise_dim: int, hidden: tuple[int, ...] = (512, 256)) -> Params:
    """Freshly drawn weights of a feature generator; the same for every party of one seed, so that averages start
    sensibly."""
    module = feature_generator(fed, "initial", noise_dim, hidden)
    initialise(module, fed.rng.torch("init", "feature generator"))
    return take(module)


def body_module(fed: Federation, role: str, name: str = "") -> models.Model:
    """The extractor F of the architecture `name`, else of the federation's, alone, called as a module: images
    `(B, ch, H, W)` to features `(B, p)`. Its parameters are those of `body_of`."""

    def build() -> models.Model:
        module = fed.built(name or fed.model)
        module.head = nn.Identity()
        return module

    return fed.cached(("body", role, name), build)


def partly_trained(fed: Federation, part: str) -> models.Model:
    """The federation's architecture, of which local training moves only this part: `full`, `head` or `body`."""

    def build() -> models.Model:
        module = fed.built(fed.model)
        for name, parameter in module.named_parameters():
            parameter.requires_grad_(name.startswith(HEAD) == (part == "head"))
        return module

    return fed.network() if part == "full" else fed.cached(("trains", part), build)


@dataclass(frozen=True)
class State:
    """The shared half after `round` rounds."""

    round: int
    shared: Params


@dataclass(frozen=True)
class ClientState:
    """A client's own half."""

    private: Params


def _everybodys_network(config: Any, fed: Federation, client: int) -> models.Model:
    return fed.network()


def _everybodys_model(config: Any, fed: Federation, client: int) -> Params:
    return fed.initial_params()


def half_shared(
    shared: Callable[[Mapping[str, Tensor]], Params],
    private: Callable[[Mapping[str, Tensor]], Params],
    network: Callable[[Any, Federation, int], models.Model] = _everybodys_network,
    initial_model: Callable[[Any, Federation, int], Params] = _everybodys_model,
    **declared: Any,
) -> Method:
    """The method that averages one half of the clients' models, `shared`, and leaves the other one, `private`, with its
    client: `body_of` and `head_of`, or the other way round. `network` and `initial_model` are a client's; `declared` is
    the rest of the `Method`."""

    def init(config: Any, fed: Federation, rng: Rng) -> State:
        """The shared half of the federation's initial model."""
        return State(0, shared(fed.initial_params()))

    def download(config: Any, fed: Federation, state: State, client: int) -> Payload:
        """The shared half."""
        return pack("model", state.shared)

    def job(
        config: Any, fed: Federation, payload: Payload, client_state: ClientState | None, data: ClientData, rng: Rng
    ) -> LocalJob:
        """Trains the received half together with the client's own one."""
        own = client_state.private if client_state is not None else private(initial_model(config, fed, data.client))
        return LocalJob(network(config, fed, data.client), unpack("model", payload) | own, finish)

    def finish(model: Params, trained: LocalResult) -> ClientResult:
        """The shared half is uploaded, the private one stays."""
        kept = ClientState(private(model))
        return ClientResult(pack("model", shared(model)), client_state=kept, model=model, loss=trained.loss)

    def server(config: Any, fed: Federation, state: State, uploads: Sequence[Upload], rng: Rng) -> State:
        """The average of the shared halves, weighted by client sizes."""
        return State(state.round + 1, average((unpack("model", u.payload), fed.sizes[u.client]) for u in uploads))

    return Method(
        State=State,
        ClientState=ClientState,
        init=init,
        download=download,
        job=job,
        server=server,
        one_pass=True,
        global_model=no_global_model,
        limits=(Limit({"clients": 1}, equals="local", other={"clients": 1}),),
        **declared,
    )
