"""DHF: prototype-driven data-free heterogeneous federated learning.

Clients of any architecture with features of one width keep a model of their own (PMA); from time to time a generator
guided by class prototypes lets the server distil all of them into a larger global model (GME).

    L_k       CE(h_k(φ_k(x)), y) + λ mean_p (φ_k(x) - C̄^y)²                                                  (5)
    C_k^j     mean of φ_k(x) over client k's samples of class j;   C̄^j = Σ_k |D_k^j|/|D^j| C_k^j             (6) (7)
    w_(k,i)   Σ_j |D_k^j|/|D_k| CE(h_i(C_k^j), j),   w'_(k,i) = softmax_i(-τ w_(k,i)),   h'_k = Σ_i w'_(k,i) h_i  (8-10)
    u_T, v_T  Σ_k |D_k^y|/|D^y| f_k(x),  Σ_k |D_k^y|/|D^y| φ_k(x),   x = G(z, y);   u_S = ω(x),  v_S = φ(x)  (11)
    L_aut     mean_p (v_T - C̄^y)²                                                                            (12)
    L_trans   -KL(softmax(u_S) ‖ softmax(u_T)) - mean_p (v_S - v_T)²                                         (13)
    L_div     exp(-mean_jk d(x_j, x_k) d(z_j, z_k))                                                          (14)
    L_gen     L_aut + λ_div L_div + λ_eff L_trans                                I_g steps of Adam           (15)
    L_glo     KL(softmax(u_T) ‖ softmax(u_S)) + α mean_p (v_S - v_T)²            I_d steps of SGD            (16)

    λ lambda    τ tau    λ_div lambda_div    λ_eff lambda_eff    α alpha
    I, I_g, I_d   server_iters, gen_steps, distill_steps
    ω_k = [φ_k, h_k]   client k's model: `model`, or deep_model for a share ν (nu) of the clients;  ω   server_model
    |D_k^j|   samples of class j that client k holds; sums over k run over the round's clients

Every round the owned prototypes, their counts and the head go up, the prototypes and the client's mixed head h'_k come
down. In a GME round (every gme_interval rounds and the last) the rest of ω_k goes up too, one byte asks for it, and
both are counted apart: bytes_up_pma, bytes_up_gme.

Differs from the paper: it gives few numbers and no code; how it is read here is stated where it is used. λ's distance
is a mean square (proto_norm); one side is detached in L_trans (the student) and in L_glo (the clients); labels are
drawn among the classes that the round's clients hold, as no ensemble weight exists for others; GME runs seldom, as
nothing of it returns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from search_spaces.parameter import choice, flag, integer, other_default, real
from trainables import models
from trainables.building_blocks import painting, prototypes
from trainables.building_blocks.distillation_bases import initial_generator
from trainables.building_blocks.losses import diversity, kd_kl, kl_rows
from trainables.building_blocks.mixed_architectures import (
    LOCAL,
    WIDE,
    MixedArchitectures,
    client_network,
    initial_model,
    name_of,
    network,
)
from trainables.building_blocks.server_distillation import (
    Batch,
    Phases,
    ServerDistillation,
    label_distribution,
)
from trainables.building_blocks.teachers import Teachers
from trainables.federation import ClientData, Federation, FederationConfig
from trainables.local import LocalJob, LocalResult, Objective
from trainables.method import Limit, Method, Painter
from trainables.models import Model
from trainables.params import pack, put, take, unpack
from trainables.rng import Rng
from trainables.wire import ClientResult, Params, Payload, Upload


@dataclass(frozen=True)
class Config(ServerDistillation, MixedArchitectures):
    """DHF's weights and networks, in the paper's own federation."""

    lambda_: float = real(
        1.0,
        low=0.0,
        high=1e4,
        log=True,
        symbol="λ",
        doc="Weight of the distance to the class prototype.",
        source="DHF Eq. 5",
        tune=(1e-3, 100),
    )
    tau: float = real(
        0.5,
        low=0.0,
        high=1000.0,
        log=True,
        symbol="τ",
        doc="Decay of a head's weight with its loss; 0 averages all heads alike.",
        source="DHF Eq. 9",
        tune=(0.01, 20),
    )
    lambda_div: float = real(
        1.0,
        low=0.0,
        high=1e3,
        log=True,
        symbol="λ_div",
        doc="Weight of the diversity loss.",
        source="DHF Eq. 15",
        tune=(0.01, 10),
    )
    lambda_eff: float = real(
        0.1,
        low=0.0,
        high=1e3,
        log=True,
        symbol="λ_eff",
        doc="Weight of the validity loss.",
        source="DHF Eq. 15",
        tune=(1e-3, 10),
    )
    alpha: float = real(
        1.0,
        low=0.0,
        high=1e3,
        log=True,
        symbol="α",
        doc="Weight of features in the distillation.",
        source="DHF Eq. 16",
        tune=(1e-3, 10),
    )
    server_model: str = choice("resnet10", (*WIDE, "resnet18"), doc="The global model.", source="DHF Sec. 5")
    head_mixing: bool = flag(True, doc="Clients start from their mixed head; else from their own.", source="DHF Eq. 10")
    proto_norm: str = choice(
        "mse", ("mse", "l2"), doc="Distance to the prototype: mean square, or Euclidean.", source="DHF Eq. 5"
    )
    gme_interval: int = integer(
        10, low=0, high=100_000, doc="Rounds between trainings of the global model; 0: there is none."
    )
    kd_temperature: float = other_default(ServerDistillation, "kd_temperature", 1.0, source="")
    noise_dim: int = other_default(ServerDistillation, "noise_dim", 100, source="")
    merge_op: str = other_default(
        ServerDistillation,
        "merge_op",
        "ncat",
        doc="How noise and label are merged; ncat appends the one-hot label.",
        source="DHF Sec. 3.2.1",
        tune=False,
    )


@dataclass(frozen=True)
class State:
    """After `round` rounds: prototypes `(C, p)`, which classes have one `(C,)`, the mixed heads h'_k of clients that
    took part; generator and global model where there is one, which is none where gme_interval is 0."""

    round: int
    prototypes: Tensor
    valid: Tensor
    heads: dict[int, Params]
    generator: Params | None
    model: Params | None


@dataclass(frozen=True)
class ClientState:
    """A client's own model ω_k."""

    model: Params


def architectures(config: Config, federation: FederationConfig) -> tuple[str, ...]:
    """The clients' two models and the server's."""
    return config.model, config.deep_model, config.server_model


def global_network(config: Config, fed: Federation, role: str = "") -> Model:
    """The module of the global model ω."""
    return network(fed, config.server_model, role)


def init(config: Config, fed: Federation, rng: Rng) -> State:
    """No prototype and no head yet; draws generator and global model."""
    width = fed.network().feature_width
    empty = (
        torch.zeros(fed.classes, width, device=fed.device),
        torch.zeros(fed.classes, dtype=torch.bool, device=fed.device),
    )
    if config.gme_interval == 0:
        return State(0, *empty, {}, None, None)
    student = global_network(config, fed)
    models.initialise(student, fed.rng.torch("init", "global"))
    return State(0, *empty, {}, initial_generator(config, fed), take(student))


def trains_global_model(config: Config, fed: Federation, round_: int) -> bool:
    """Whether round `round_` (1, 2, ...) is a GME round: every gme_interval rounds, and the last one planned."""
    return config.gme_interval > 0 and (round_ % config.gme_interval == 0 or round_ == fed.rounds)


def download(config: Config, fed: Federation, state: State, client: int) -> Payload:
    """The prototypes there are, the client's mixed head, and in a GME round the request for the whole model."""
    there = [j for j, valid in enumerate(state.valid.tolist()) if valid]
    found = {f"prototype/{j}": state.prototypes[j] for j in there}
    asked = {"request": torch.ones((), dtype=torch.bool)} if trains_global_model(config, fed, state.round + 1) else {}
    return found | pack("head", state.heads.get(client, {})) | asked


def job(
    config: Config, fed: Federation, payload: Payload, client_state: ClientState | None, data: ClientData, rng: Rng
) -> LocalJob:
    """Trains the client's own model near the prototypes; uploads its prototypes, their counts and the head, and the
    rest if asked."""
    module = client_network(config, fed, data.client)
    own_model = initial_model(fed, name_of(config, fed, data.client)) if client_state is None else client_state.model
    start = own_model | {f"head.{name}": tensor for name, tensor in unpack("head", payload).items()}
    targets = {int(j): prototype for j, prototype in unpack("prototype", payload).items()}

    def finish(model: Params, trained: LocalResult) -> ClientResult:
        put(module, model)
        own, counts = prototypes.class_means(module, data), data.label_counts()
        upload = (
            prototypes.owned("prototype", own, counts)
            | prototypes.owned("count", counts.to(torch.int32), counts)
            | pack("head", _head(model))
        )
        if "request" in payload:
            upload |= pack("model", {name: tensor for name, tensor in model.items() if not name.startswith("head.")})
        return ClientResult(upload=upload, client_state=ClientState(model), model=model, loss=trained.loss)

    return LocalJob(module, start, finish, partial(objective, config, fed), (targets,))


def _head(model: Params) -> Params:
    return {name.removeprefix("head."): tensor for name, tensor in model.items() if name.startswith("head.")}


class NearPrototypes(Protocol):
    """What `objective` reads of a configuration: λ, and the distance that it weighs."""

    @property
    def lambda_(self) -> float: ...

    @property
    def proto_norm(self) -> str: ...


def objective(config: NearPrototypes, fed: Federation, targets: Mapping[int, Tensor]) -> Objective:
    """L_k, Eq. (5), with the prototypes `(p,)` of the classes that have one."""
    if config.lambda_ == 0 or not targets:
        return lambda module, x, y: F.cross_entropy(module(x), y)
    absent = torch.zeros_like(next(iter(targets.values())))
    table = torch.stack([targets.get(j, absent) for j in range(fed.classes)])
    # Made where they are used: no numbers of the processor may enter a step that is recorded as a CUDA graph.
    one, zero = absent.new_ones(()), absent.new_zeros(())
    valid = torch.stack([one if j in targets else zero for j in range(fed.classes)])

    def loss(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        assert isinstance(module, Model)
        features = module.features(x)
        return F.cross_entropy(module.head(features), y) + config.lambda_ * prototype_distance(
            features, table[y], valid[y], config.proto_norm
        )

    return loss


def prototype_distance(features: Tensor, targets: Tensor, valid: Tensor, norm: str = "mse") -> Tensor:
    """`mean_b R_b`, `R_b = mean_p (φ(x_b) - C̄^y)²` (or the Euclidean norm), 0 where `valid` `(B,)` is 0. Features,
    targets `(B, p)`."""
    apart = features - targets.detach()
    rows = apart.square().mean(dim=1) if norm == "mse" else torch.linalg.vector_norm(apart, dim=1)
    return (valid * rows).mean()


def server(config: Config, fed: Federation, state: State, uploads: Sequence[Upload], rng: Rng) -> State:
    """PMA: merges prototypes, mixes heads. GME, in its rounds: trains the generator and distils the clients' models."""
    now = state.round + 1
    own, counts = _reports(fed, state, uploads)
    merged, valid = prototypes.merge(state.prototypes, state.valid, own, counts)
    heads = dict(state.heads)
    if config.head_mixing:
        stacked = {name: torch.stack([u.payload[f"head/{name}"] for u in uploads]) for name in ("weight", "bias")}
        weights = prototypes.head_weights(
            prototypes.head_losses(own, counts, stacked["weight"], stacked["bias"]), config.tau
        )
        mixed = {name: prototypes.mix(weights, many) for name, many in stacked.items()}
        heads |= {
            u.client: {name: many[place].clone() for name, many in mixed.items()} for place, u in enumerate(uploads)
        }
    generator, model = state.generator, state.model
    if trains_global_model(config, fed, now):
        assert generator is not None and model is not None
        generator, model = enhance(config, fed, generator, model, merged, counts, uploads, rng)
    return State(now, merged, valid, heads, generator, model)


def _reports(fed: Federation, state: State, uploads: Sequence[Upload]) -> tuple[Tensor, Tensor]:
    """The round's prototypes `(S, C, p)` and counts `(S, C)` as tables, 0 for what a client does not own."""
    own = torch.zeros(len(uploads), *state.prototypes.shape, device=fed.device)
    counts = torch.zeros(len(uploads), fed.classes, dtype=torch.int64)
    for place, upload in enumerate(uploads):
        for j, prototype in unpack("prototype", upload.payload).items():
            own[place, int(j)] = prototype
            counts[place, int(j)] = upload.payload[f"count/{j}"]
    return own, counts


def enhance(
    config: Config,
    fed: Federation,
    generator: Params,
    model: Params,
    merged: Tensor,
    counts: Tensor,
    uploads: Sequence[Upload],
    rng: Rng,
) -> tuple[Params, Params]:
    """GME: alternates phases of the generator and of the global model; returns both. `merged` C̄ `(C, p)`, `counts`
    `(S, C)`."""
    whole = [
        Upload(
            u.client,
            pack("model", unpack("model", u.payload) | {f"head.{k}": v for k, v in unpack("head", u.payload).items()}),
        )
        for u in uploads
    ]
    teachers = Teachers(fed, whole, lambda client, role: client_network(config, fed, client, role))
    weights = label_distribution(counts, len(uploads), fed.classes).weights.to(fed.device)
    held = (counts.sum(dim=0) > 0).float()
    student = global_network(config, fed, "student")
    phases = Phases(config, fed, student, model, generator, held / held.sum(), rng)

    def of_generator(batch: Batch) -> Tensor:
        features, logits = teachers.features_and_logits(batch.seen, weights[:, batch.y])
        with torch.no_grad():
            own_features = student.features(batch.seen)
            own_logits = student.head(own_features)
        return generator_loss(
            config, features, logits, own_features, own_logits, merged[batch.y], batch.images, batch.z
        )

    def of_student(batch: Batch) -> Tensor:
        with torch.no_grad():
            features, logits = teachers.features_and_logits(batch.seen, weights[:, batch.y])
        own_features = student.features(batch.seen)
        return global_loss(config, features, logits, own_features, student.head(own_features))

    for _ in range(config.server_iters):
        phases.generator_phase(of_generator)
        phases.distillation_phase(of_student)
    return take(phases.generator), take(student)


def validity_loss(config: Config, features: Tensor, logits: Tensor, own_features: Tensor, own_logits: Tensor) -> Tensor:
    """L_trans, Eq. (13): of the ensemble's features `(B, p)` and logits `(B, C)` and the student's, which are
    detached."""
    return -kl_rows(own_logits.detach(), logits, config.kd_temperature).mean() - F.mse_loss(
        features, own_features.detach()
    )


def generator_loss(
    config: Config,
    features: Tensor,
    logits: Tensor,
    own_features: Tensor,
    own_logits: Tensor,
    targets: Tensor,
    images: Tensor,
    noise: Tensor,
) -> Tensor:
    """L_gen, Eq. (15). `targets` are the labels' prototypes `(B, p)`, `images` `(B, ch, H, W)`, `noise` `(B, d)`."""
    loss = F.mse_loss(features, targets)
    if config.lambda_div > 0:
        loss = loss + config.lambda_div * diversity(images, noise, config.diversity_norm)
    if config.lambda_eff > 0:
        loss = loss + config.lambda_eff * validity_loss(config, features, logits, own_features, own_logits)
    return loss


def global_loss(config: Config, features: Tensor, logits: Tensor, own_features: Tensor, own_logits: Tensor) -> Tensor:
    """L_glo, Eq. (16): the student's `own_…` move, the ensemble is detached."""
    loss = kd_kl(own_logits, logits, config.kd_temperature, config.kl_direction)
    return loss + config.alpha * F.mse_loss(own_features, features.detach()) if config.alpha > 0 else loss


def painters(config: Config, fed: Federation, state: State, clients: Mapping[int, ClientState]) -> dict[str, Painter]:
    """G; none where gme_interval is 0."""
    if state.generator is None or state.model is None:
        return {}
    generators = {"generator": state.generator}
    return painting.painters(config, fed, generators, global_network(config, fed, "judge"), state.model)


METHOD = Method(
    name="dhf",
    title="DHF",
    reference="Prototype-Driven Data-Free Heterogeneous Federated Learning",
    family="personalised, with server-side data-free distillation",
    Config=Config,
    State=State,
    ClientState=ClientState,
    init=init,
    download=download,
    job=job,
    server=server,
    recordable_server=True,
    architectures=architectures,
    client_network=client_network,
    global_network=global_network,
    shares_label_counts=True,
    painters=painters,
    images=True,
    follows_plan=lambda config, rounds: config.gme_interval > 0 and rounds % config.gme_interval != 0,
    traffic={"pma": ("prototype/", "count/", "head/"), "gme": ("model/", "request")},
    limits=(Limit({"lambda": 0, "head_mixing": False, "nu": 0, "gme_interval": 0}, equals="local", other=LOCAL),),
)
