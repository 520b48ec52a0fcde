"""FedKF: federated learning with global-local knowledge fusion.

Zhou, Lei, Yang, Shi, Zhang, Shi: Handling Data Heterogeneity in Federated Learning via Knowledge Distillation and
Fusion, IEEE Internet of Things Journal 2023.

The server caches every client's latest model (T1, `trainables.building_blocks.model_cache`). A client trains on its
data and distils from the average of that cache, on images of a generator that it keeps and trains at every step (T2).

    start    w_k ← w (ACA);   teacher ŵ: the cache's average (OCA), frozen;   x̂ = g(z; θ_k),  z ~ N(0, I)
    L_OH     CE(h(x̂; ŵ), ŷ),   ŷ = argmax h(x̂; ŵ)                                                  (2)
    L_IE     Σ_c p̄_c log p̄_c,   p̄ = mean_b h(x̂_b; ŵ)                                               (3)
    L_A      -mean |f(x̂; ŵ)|                                                                       (4)
    L_G      L_IE + λ1 L_OH + λ2 L_A                          one Adam step on θ_k                 (5)
    L_KL     KL(h(x̂; ŵ) ‖ h(x̂; w_k))                                                               (6)
    L        CE(h(x; w_k), y) + γ L_KL                        one SGD step on w_k                  (7, 8)
    server   ŵ_k ← w_k;   w ← Σ_(k∈S) n_k w_k / Σ n_k;   ŵ ← Σ_k n_k ŵ_k / Σ n_k                   (Alg. 1)

    λ1 lambda1    λ2 lambda2    γ gamma    β gen_lr    d noise_dim (of z)    η lr    B batch_size    E local_epochs
    h   class probabilities     f   features, the input of the last layers

Both steps use the same images and the teacher is fixed, so their order does not matter, unless gen_adversarial makes
L_G depend on the student. FedKF(ACA) and FedKF(OCA) are
the two readouts of one run; FedKF- is teacher aca, whose clients are sent nothing beyond w.

Differs from the paper: clients that were never drawn are left out of ŵ (cache_init w0: counted with the initial model)
and distillation starts in round 2 (kd_from_round), where the teacher has been trained; both as in the authors' code.
L_IE's outer symbol is read as the entropy, L_A as a mean. gen_adversarial, entropy_scale unit and activation_norm sum
are that code's, or the literal, alternatives. With gen_adversarial the generator's step here comes before the
student's and meets the student as it was; in that code it comes after it and meets the student just updated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from search_spaces.parameter import choice, flag, integer, real
from trainables import models
from trainables.building_blocks.losses import kd_kl
from trainables.building_blocks.model_cache import Cache, Readout, both, chosen, oca_limit, remember
from trainables.building_blocks.painting import judged_by
from trainables.building_blocks.parameter_kinds import adam_lr, temperature
from trainables.federation import ClientData, Federation
from trainables.generators.noise import NoiseGenerator
from trainables.kernels.optimisers import Adam
from trainables.local import cross_entropy, train
from trainables.method import Limit, Method, Painter
from trainables.params import average, on, pack, put, put_state, take, take_state, unpack
from trainables.rng import Rng
from trainables.wire import ClientResult, Params, Payload, Upload


@dataclass(frozen=True)
class Config(Readout):
    """FedKF's weights and switches, on top of local training and of the choice of readout."""

    lambda1: float = real(
        0.1,
        low=0.0,
        high=10.0,
        log=True,
        symbol="λ1",
        doc="Weight of the generator's one-hot loss.",
        source="FedKF Eq. 5",
        tune=(1e-3, 1.0),
    )
    lambda2: float = real(
        0.1,
        low=0.0,
        high=10.0,
        log=True,
        symbol="λ2",
        doc="Weight of the generator's activation loss.",
        source="FedKF Eq. 5",
        tune=(1e-4, 1.0),
    )
    gamma: float = real(
        1.0,
        low=0.0,
        high=100.0,
        log=True,
        symbol="γ",
        doc="Weight of the distillation; 0 is FedAvg.",
        source="FedKF Eq. 8",
        tune=(1e-2, 10.0),
    )
    teacher: str = choice(
        "oca",
        ("oca", "aca"),
        doc="Who teaches: the average over every client's latest model, or (FedKF-) the model the client starts from.",
        source="FedKF Sec. VI-A",
        tune=True,
    )
    gen_lr: float = adam_lr(
        1e-3, symbol="β", doc="Adam learning rate of the clients' generators.", source="FedKF Sec. VI-A"
    )
    noise_dim: int = integer(
        100,
        low=1,
        high=4096,
        symbol="d",
        doc="Width of the generator's noise; the code takes 1000 for CIFAR.",
        source="FedKF code",
    )
    kd_from_round: int = integer(
        2,
        low=1,
        high=100_000,
        doc="First round with distillation; before it a client trains on its data alone.",
        source="FedKF code",
    )
    kd_temperature: float = temperature(
        1.0, symbol="T", doc="Temperature of both softmaxes in L_KL.", source="FedKF code"
    )
    kl_direction: str = choice(
        "teacher_first", ("teacher_first", "literal"), doc="Position of the teacher in L_KL.", source="FedKF Eq. 6"
    )
    gen_adversarial: bool = flag(
        False,
        doc="Subtract γ L_KL from L_G: the generator seeks images on which student and teacher differ.",
        source="FedKF code",
    )
    entropy_scale: str = choice(
        "nats", ("nats", "unit"), doc="L_IE as printed, or divided by log C.", source="FedKF Eq. 3; code"
    )
    activation_norm: str = choice(
        "mean",
        ("mean", "sum"),
        doc="L_A: mean over a sample's features, or their sum as printed.",
        source="FedKF code; Eq. 4",
    )
    equal_local_steps: bool = flag(
        True,
        doc="With local_epochs every client passes over as many batches as the mean client holds.",
        source="FedKF code",
    )

    @property
    def passes_per_sample(self) -> int:
        """A step on a sample, the teacher's answer to a generated image with its gradient to the image, and a step of
        the student on that image; the generator itself is left out."""
        return super().passes_per_sample + (2 + super().passes_per_sample if self.gamma > 0 else 0)


@dataclass(frozen=True)
class State:
    """After `round` rounds: the ACA model `w` and the cache, whose `overall` is ŵ (None before round 1)."""

    round: int
    model: Params
    cache: Cache | None


@dataclass(frozen=True)
class ClientState:
    """What a client keeps: its generator θ_k and the state of its Adam."""

    generator: Params
    adam: dict[str, Tensor]


def init(config: Config, fed: Federation, rng: Rng) -> State:
    """Draws the initial model."""
    return State(0, fed.initial_params(), None)


def download(config: Config, fed: Federation, state: State, client: int) -> Payload:
    """The ACA model, and in rounds with distillation the OCA model. FedKF- sends no second model: an empty entry says
    that the first one teaches."""
    payload = pack("model", state.model)
    if config.gamma == 0 or state.round + 1 < config.kd_from_round:
        return payload
    if config.teacher == "aca":
        return payload | {"model_teaches": torch.empty(0)}
    return payload | pack("teacher", state.model if state.cache is None else state.cache.overall)


def client(
    config: Config, fed: Federation, payload: Payload, client_state: ClientState | None, data: ClientData, rng: Rng
) -> ClientResult:
    """Trains the received model on the client's data and, in rounds with distillation, on its generator's images."""
    model = unpack("model", payload)
    module = fed.network()
    put(module, model)
    taught_by = model if "model_teaches" in payload else unpack("teacher", payload)
    fusion = Fusion(config, fed, taught_by, client_state, rng) if taught_by else None
    trained = train(planned(config, fed), module, data, rng, fusion or cross_entropy)
    model = take(module)
    return ClientResult(
        upload=pack("model", model),
        client_state=fusion.client_state() if fusion else client_state,
        model=model,
        loss=trained.loss,
    )


def planned(config: Config, fed: Federation) -> Config:
    """The configuration with E passes over the mean client's batches, `E · max(1, ⌊n/(N·B)⌋)` steps, where all do
    equally many."""
    if not (config.equal_local_steps and config.local_epochs):
        return config
    batches = max(1, sum(fed.sizes) // (fed.clients * config.batch_size))
    return replace(config, local_epochs=0, local_steps=config.local_epochs * batches)


class Fusion:
    """The objective of Eq. (8) for `local.train`; every call also makes the generator's step on the same images."""

    def __init__(
        self, config: Config, fed: Federation, teacher: Mapping[str, Tensor], client_state: ClientState | None, rng: Rng
    ) -> None:
        self.config = config
        self.teacher = fed.network(role="teacher")
        put(self.teacher, teacher)
        self.teacher.eval().requires_grad_(False)
        self.generator = fed.cached(
            ("noise generator", config.noise_dim),
            lambda: NoiseGenerator(fed.shape, config.noise_dim, fed.mean, fed.std),
        )
        if client_state is None:  # every client starts from the same θ
            models.initialise(self.generator, fed.rng.torch("init", "noise generator"))
        else:
            put(self.generator, on(fed.device, client_state.generator))
        self.adam = Adam(self.generator.parameters(), lr=config.gen_lr, fused=True)
        if client_state is not None:
            put_state(self.adam, self.generator, client_state.adam)
        self.noise = rng.torch("noise")
        self.device = fed.device

    def __call__(self, student: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """L of the batch `x` `(B, ch, H, W)`, `y` `(B,)`; steps the generator."""
        c = self.config
        z = torch.randn(c.batch_size, c.noise_dim, generator=self.noise).to(self.device)
        images = self.generator(z)
        features = self.teacher.features(images)
        logits = self.teacher.head(features)
        loss = generator_loss(c, logits, features)
        if c.gen_adversarial:
            loss = loss - c.gamma * kd_kl(student(images), logits, c.kd_temperature, c.kl_direction)
        self.adam.zero_grad(set_to_none=True)
        loss.backward(inputs=list(self.generator.parameters()))
        self.adam.step()
        distilled = kd_kl(student(images.detach()), logits, c.kd_temperature, c.kl_direction)
        return F.cross_entropy(student(x), y) + c.gamma * distilled

    def client_state(self) -> ClientState:
        """What the client keeps after the round."""
        return ClientState(take(self.generator), take_state(self.adam, self.generator))


def one_hot_loss(logits: Tensor) -> Tensor:
    """Eq. (2): the mean cross-entropy of the teacher's logits `(B, C)` on their own argmax, which passes no
    gradient."""
    return F.cross_entropy(logits, logits.detach().argmax(dim=1))


def information_entropy_loss(logits: Tensor, scale: str = "nats") -> Tensor:
    """Eq. (3): `Σ_c p̄_c log p̄_c` of the batch's mean prediction, in [-log C, 0]; `unit` divides it by log C. Logits
    `(B, C)`.

    The logarithm is formed from log-probabilities, so a class that is never predicted gives 0 and a finite gradient."""
    log_mean = torch.logsumexp(F.log_softmax(logits, dim=1), dim=0) - math.log(len(logits))
    negative_entropy = (log_mean.exp() * log_mean).sum()
    return negative_entropy / math.log(logits.shape[1]) if scale == "unit" else negative_entropy


def activation_loss(features: Tensor, norm: str = "mean") -> Tensor:
    """Eq. (4): minus the mean absolute feature of `(B, p)`; `sum` adds up a sample's features instead."""
    sizes = features.abs()
    return -(sizes.sum(dim=1).mean() if norm == "sum" else sizes.mean())


def generator_loss(config: Config, logits: Tensor, features: Tensor) -> Tensor:
    """Eq. (5) from the teacher's logits `(B, C)` and features `(B, p)` on generated images."""
    loss = information_entropy_loss(logits, config.entropy_scale)
    if config.lambda1 > 0:
        loss = loss + config.lambda1 * one_hot_loss(logits)
    if config.lambda2 > 0:
        loss = loss + config.lambda2 * activation_loss(features, config.activation_norm)
    return loss


def server(config: Config, fed: Federation, state: State, uploads: Sequence[Upload], rng: Rng) -> State:
    """The average over the round's clients, and the cache with its average."""
    model = average((unpack("model", u.payload), fed.sizes[u.client]) for u in uploads)
    return State(state.round + 1, model, remember(config, fed, state.cache, uploads))


def global_model(config: Config, fed: Federation, state: State) -> Params:
    """The readout asked for."""
    return chosen(config, state.model, state.cache)


def readouts(config: Config, fed: Federation, state: State) -> Mapping[str, Params]:
    """FedKF(ACA) and FedKF(OCA)."""
    return both(state.model, state.cache)


def painters(config: Config, fed: Federation, state: State, clients: Mapping[int, ClientState]) -> dict[str, Painter]:
    """The generator of the first client that has one. It takes no labels; ŵ says what it has painted (Fig. 3)."""
    own = next((kept for _, kept in sorted(clients.items())), None)
    if own is None:
        return {}
    module = fed.cached(
        ("noise generator to look at", config.noise_dim),
        lambda: NoiseGenerator(fed.shape, config.noise_dim, fed.mean, fed.std),
    )
    put(module, on(fed.device, own.generator))
    overall = state.cache.overall if state.cache is not None else state.model
    judge = judged_by(fed.network(role="judge"), on(fed.device, overall))
    return {"generator": Painter(config.noise_dim, lambda z, y: module(z), judge)}


METHOD = Method(
    name="fedkf",
    title="FedKF",
    reference="Zhou et al., IoT-J 2023",
    family="one global model",
    Config=Config,
    State=State,
    ClientState=ClientState,
    init=init,
    download=download,
    client=client,
    server=server,
    global_model=global_model,
    readouts=readouts,
    painters=painters,
    images=True,
    limits=(
        Limit({"gamma": 0}, equals="fedavg"),
        Limit({"gamma": 0, "active_clients": 2}, equals="fedavg", other={"active_clients": 2, "model_cache": True}),
        oca_limit({"gamma": 0}),
        oca_limit({"gamma": 0}, cache_init="w0"),
        Limit({"gamma": 0, "local_epochs": 2, "equal_local_steps": False}, equals="fedavg", other={"local_epochs": 2}),
        Limit({"kd_from_round": 100}, equals="fedavg"),
        # With every client drawn in every round the two averages are one.
        Limit({"readout": "oca"}, equals="fedkf"),
        Limit({"teacher": "aca"}, equals="fedkf"),
    ),
)
