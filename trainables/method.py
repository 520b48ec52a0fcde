"""A federated method is one record of pure functions and the wire between them.

    init(config, fed, rng)                                 -> State           the server before round 1
    download(config, fed, state, client)                   -> Payload         what the server sends this client
    client(config, fed, payload, client_state, data, rng)  -> ClientResult    what one client computes, or
    job(config, fed, payload, client_state, data, rng)     -> LocalJob        what it trains, where it does no more
    server(config, fed, state, uploads, rng)               -> State           what the server makes of the uploads
    global_model(config, fed, state)                       -> Params | None   the model behind global accuracy

`fed` is the public knowledge every party shares: number and sizes of clients, classes, image shape, architectures,
budgets (see `trainables.federation.Federation`). It holds no sample. A client sees its payload, its own state and its
own data; the server sees uploads. Payloads and uploads are flat dictionaries of tensors, so bytes are counted exactly.

`State` and `ClientState` are frozen dataclasses whose fields are tensors, numbers, strings, None, dictionaries and
tuples of these, or further such dataclasses: a checkpoint is one value (see `trainables.simulation.checkpoint`).
Functions never change their arguments in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor, nn

from search_spaces.errors import sentence
from trainables.local import client_of
from trainables.wire import ClientResult, Params, Payload, Upload

if TYPE_CHECKING:
    from trainables.federation import ClientData, Federation, FederationConfig
    from trainables.local import LocalJob
    from trainables.models import Model
    from trainables.rng import Rng
Widths = Literal["equal", "any"]


@dataclass(frozen=True)
class Limit:
    """A declared special case: with these values the method equals `equals` (another method's name), bit for bit.

    `other` are values given to that other method; both run on the same federation."""

    values: Mapping[str, object]
    equals: str
    other: Mapping[str, object] = field(default_factory=dict)


def _client_network(config: Any, fed: Federation, client: int) -> nn.Module:
    # With running statistics a sub-model scales in evaluation too, see `trainables.models.base.Model.scale`.
    return fed.network(fed.widths[client], scaler=getattr(config, "scaler", False))


def _global_network(config: Any, fed: Federation) -> nn.Module:
    return fed.network()


def _the_job_alone(
    config: Any, fed: Federation, payload: Payload, client_state: Any, data: ClientData, rng: Rng
) -> ClientResult:
    """Stands for `client_of(job)`, which takes its place."""
    raise NotImplementedError


def _model_of_the_state(config: Any, fed: Federation, state: Any) -> Params:
    model: Params = state.model
    return model


def no_global_model(config: Any, fed: Federation, state: Any) -> None:
    """For methods whose server never holds a complete model."""


def _no_problems(config: Any, federation: FederationConfig) -> list[str]:
    return []


def _the_federations(config: Any, federation: FederationConfig) -> tuple[str, ...]:
    return (federation.model,)


def _always(config: Any) -> bool:
    return True


def _as_far_as_it_goes(config: Any, rounds: int) -> bool:
    return False


@dataclass(frozen=True)
class Personal:
    """What clients make, for measurement alone, of the model they would be sent next: a step of fine-tuning.

    It runs whenever models are measured, for the clients of the round, after the server, on a client's training data.
    Nothing of it reaches the next round, and no bytes are counted: what it starts from is sent anyway.

    training: the configuration (the method's own Config) of this training; None where there is none under these values,
    and the model that the client has trained is measured. job: as `Method.job`, called with that configuration and with
    what `download` would send now; the `model` of its result is measured."""

    training: Callable[[Any], Any]
    job: Callable[[Any, Federation, Payload, Any, ClientData, Rng], LocalJob]


@dataclass(frozen=True)
class Painter:
    """A generator in the state that a round has left it in, to be looked at (`keep_images`).

    paint: noise z ~ N(0, I) `(B, noise_dim)` and labels `(B,)` to images as models are fed them, `(B, ch, H, W)`. It
    works on modules of its own (`Federation.cached` under a role that training does not use) and draws nothing.
    judge: for a generator that takes no labels, whose `paint` ignores them: images as above to the class `(B,)` that
    each is taken for.
    observe: for a generator of features, whose `paint` gives `(B, p)`: images as above to the features that it
    imitates, `(B, p)`. What it makes is then shown among those of the test images."""

    noise_dim: int
    paint: Callable[[Tensor, Tensor], Tensor]
    judge: Callable[[Tensor], Tensor] | None = None
    observe: Callable[[Tensor], Tensor] | None = None


@dataclass(frozen=True)
class Method:
    """One federated method; a file in `trainables/methods` assigns one of these to `METHOD`."""

    name: str
    title: str
    reference: str
    family: str
    Config: type
    State: type
    init: Callable[[Any, Federation, Rng], Any]
    download: Callable[[Any, Federation, Any, int], Payload]
    server: Callable[[Any, Federation, Any, Sequence[Upload], Rng], Any]
    ClientState: type | None = None
    #: What a client does as one pure training job (`trainables.local.LocalJob`). A cohort's jobs can be trained as one
    #: program. None: clients do more than that, and `client` says what.
    job: Callable[[Any, Federation, Payload, Any, ClientData, Rng], LocalJob] | None = None
    #: Without it a client does its job and no more: `local.client_of(job)`.
    client: Callable[[Any, Federation, Payload, Any, ClientData, Rng], ClientResult] = _the_job_alone
    #: Without it the global model is the state's `model`.
    global_model: Callable[[Any, Federation, Any], Params | None] = _model_of_the_state
    #: `any`: clients may train sub-models of different widths (rho > 0).
    widths: Widths = "equal"
    #: Whether label counts leave the clients; a function where that depends on the configuration (see
    #: `sends_label_counts`).
    shares_label_counts: bool | Callable[[Any], bool] = False
    limits: tuple[Limit, ...] = ()
    #: A further check of a configuration's values that no single bound can express; returns problems.
    check: Callable[[Any, FederationConfig], list[str]] = _no_problems
    #: Whether clients do no more than `job` under a configuration.
    job_applies: Callable[[Any], bool] = _always
    #: How clients fine-tune the server's model before their local accuracy is measured. None: what is measured is the
    #: `model` of the round's `ClientResult`.
    personal: Personal | None = None
    #: The names of the models that are trained (`auto` has batch normalisation).
    architectures: Callable[[Any, FederationConfig], tuple[str, ...]] = _the_federations
    #: The module of a client's complete local model, and of the global model, where they are not the federation's own.
    client_network: Callable[[Any, Federation, int], nn.Module] = _client_network
    global_network: Callable[[Any, Federation], nn.Module] = _global_network
    #: What predicts for a client where `client_network` is no plain model but a module around one: makes such a module
    #: of a model, to be loaded with a client's weights. With it clients' models can be read from a run's files.
    around: Callable[[Model], nn.Module] | None = None
    #: Where clients have two models: by name, the module of what `ClientResult.others` holds beside the client's main
    #: one. Measured as `<name>_local_accuracy` and `<name>_p_acc` (names are declared in `search_spaces.metrics`).
    other_networks: Mapping[str, Callable[[Any, Federation, int], nn.Module]] = field(default_factory=dict)
    #: Further global models measured beside the main one, by name; their metrics are recorded as `<name>_<metric>`.
    readouts: Callable[[Any, Federation, Any], Mapping[str, Params]] | None = None
    #: Parts of the traffic that are counted separately as well: by name, how the entries that belong to it begin.
    #: Recorded as `bytes_up_<name>` and `bytes_down_<name>` (declared in `search_spaces.metrics`).
    traffic: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: The generators that the method has now, from the server's state and those of the clients, by name: of images
    #: one of `search_spaces.kept_images.SOURCES`, of features `features`. Where a run keeps images they are painted.
    #: None: it never has one.
    painters: Callable[[Any, Federation, Any, Mapping[int, Any]], Mapping[str, Painter]] | None = None
    #: Also measure the throw-away average of the round's complete local models (`g_acc_virtual`); a function where that
    #: depends on the configuration (see `measures_virtual`).
    virtual: bool | Callable[[Any], bool] = False
    #: Whether clients end with models of their own, where that depends on the configuration (see
    #: `has_personal_models`). None: the rest of this record tells.
    keeps_models: Callable[[Any], bool] | None = None
    #: Whether `server` goes over the uploads once, in order, and needs no two of them at the same time, under a
    #: configuration. It does nothing else before but call `wire.ahead`: the clients train while it goes over the
    #: uploads, see `wire.OnePass`. A server cannot that learns from the clients' models or compares them (DENSE, DFRD,
    #: FedFTG, FedGen, FedCG, FedMD-CG, DHF, FedAMP), that keeps what each client sent (FedKF, FedFomo, FedDistill, a
    #: cache of models), or that goes over all prototypes again and again, which are small (FedGH, FedTGP).
    one_pass: bool | Callable[[Any], bool] = False
    #: Whether the server takes many equal steps, which it gives `Federation.record` to record.
    recordable_server: bool = False
    #: Whether the data must be images, as the method generates such; without it, vectors will do.
    images: bool = False
    #: Whether the first `rounds` rounds of a run would be others if more rounds than these were planned, under a
    #: configuration: a schedule spans the planned rounds (`Federation.rounds`), or the last one is special. Such a run
    #: cannot be continued beyond its plan.
    follows_plan: Callable[[Any, int], bool] = _as_far_as_it_goes

    def __post_init__(self) -> None:
        if self.client is _the_job_alone:
            if self.job is None:
                raise TypeError(f"The method {self.name} says neither which job its clients do nor what a client does.")
            object.__setattr__(self, "client", client_of(self.job))

    @property
    def capabilities(self) -> tuple[str, ...]:
        """What sets the method apart, in words: who has which model, and what else leaves the clients."""
        return tuple(
            word
            for word, holds in (
                ("global model", self.global_model is not no_global_model),
                ("sub-models of any width", self.widths == "any"),
                ("clients' own architectures", self.architectures is not _the_federations),
                ("fine-tuned before it is measured", self.personal is not None),
                ("label counts leave clients", self.shares_label_counts is True),
                ("label counts leave clients in some configurations", callable(self.shares_label_counts)),
            )
            if holds
        )

    def has_personal_models(self, config: Any) -> bool:
        """Whether clients end with models of their own that predict for them, under this configuration: there is no
        global model, they fine-tune it, they have a second model beside it, or theirs is another module."""
        if self.keeps_models is not None:
            return self.keeps_models(config)
        return (
            self.global_model is no_global_model
            or (self.personal is not None and self.personal.training(config) is not None)
            or bool(self.other_networks)
            or self.client_network is not _client_network
        )

    def sends_label_counts(self, config: Any) -> bool:
        """Whether label counts leave the clients under this configuration."""
        sends = self.shares_label_counts
        return sends(config) if callable(sends) else sends

    def reads_once(self, config: Any) -> bool:
        """Whether the server goes over the uploads once under this configuration (`one_pass`)."""
        return self.one_pass(config) if callable(self.one_pass) else self.one_pass

    def measures_virtual(self, config: Any) -> bool:
        """Whether `g_acc_virtual` is measured under this configuration."""
        return self.virtual(config) if callable(self.virtual) else self.virtual


def executor_problems(executor: str, method: Method, config: Any) -> list[str]:
    """Why this executor cannot train this method's clients; empty where it can."""
    served = executor == "graph" and method.recordable_server
    if executor in ("auto", "loop") or served or stackable(method, config):
        return []
    why = (
        "whose clients do more than train one model by SGD"
        if method.job is None
        else "whose clients do more than one run of SGD steps in this configuration"
    )
    return [sentence("executor", f"loop or auto for {method.name}, {why}", executor)]


def stackable(method: Method, config: Any) -> bool:
    """Whether the method's clients are pure training jobs under this configuration."""
    return method.job is not None and method.job_applies(config)
