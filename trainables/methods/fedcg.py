"""FedCG: conditional GANs on features, for privacy and competitive performance.

Wu, Kang, Luo, He, Yang: FedCG: Leverage Conditional GAN for Protecting Privacy and Maintaining Competitive Performance
in Federated Learning, IJCAI 2022. Settings are those of FedMD-CG's comparison.

A client's model is D_i(F_i(x)). It keeps F_i and a discriminator Q_i; the generator G_i, trained against Q_i to make
features like F_i's, travels with the classifier D_i.

    stage 1   D_i ← D;  I_c SGD steps on F_i, D_i with the global generator G frozen; z ~ N(0, I), y the batch's labels:
              CE(D_i(F_i(x)), y) + γ_r mean (F_i(x) - G(z, y))²
    γ_r       γ · (2/(1 + exp(-10 min((r-1)/50, 1))) - 1)   (sigmoid)   or   γ ((r-1)/R)^d   (polynomial)
    stage 2   G_i ← G;  I_c pairs of Adam steps with F_i frozen, fresh batches:
              Q_i   -mean [log Q_i(F_i(x)) + log(1 - Q_i(G_i(z, y)))]
              G_i   -mean log Q_i(G_i(z, y))
    server    [G, D] ← Σ_i n_i/n [G_i, D_i], then KL(Σ_i n_i/n D_i(G_i(z, y)) ‖ D(G(z, y))) over G and D, y uniform

    γ gamma    d ramp_power    R rounds (planned)    I_c local_steps
    Q_i: the classifier's architecture with one output    β1 gan_beta1, of both Adams of stage 2
    server_agg   kd: as above;   ave_star, ave: only the average;   kdc: FedMD-CG's L_kl,1 + L_kl,2 + L_kl,3, for which
                 clients send counts of the labels drawn and y ~ p(y)

There is no global model; `g_acc_virtual` averages the complete local models. `train_loss` is the cross-entropy on data.
`gd_loss` is CE(D_i(G_i(z, y)), y) after stage 2.

Differs from the paper: γ scales the ramp; steps are counted instead of epochs; SGD trains the local model as in the
comparison; Q_i is not shown the label, and stage 2 has β1 = 0.9 and weight decay, as in the comparison, where FedCG's
code has 0.5 and none (gan_beta1, gen_weight_decay); local models start from the federation's common initial one; the
server's Adam starts anew each round. The comparison's code differs from both: its stage 2 goes through the batches of
stage 1 again, without those whose labels add up to the same number as an earlier one's, and each pair of steps updates
the generator's running statistics twice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from search_spaces.parameter import choice, other_default, real
from trainables import models
from trainables.building_blocks import distillation_bases
from trainables.building_blocks.generator_aggregation import (
    GeneratorAggregation,
    aggregate,
    draw_noise,
    gd_loss,
    ramp,
)
from trainables.building_blocks.painting import feature_painters
from trainables.building_blocks.parameter_kinds import adam_lr
from trainables.building_blocks.split_model import body_of, feature_generator, head_of, initial_generator
from trainables.federation import ClientData, Federation
from trainables.kernels.optimisers import Adam
from trainables.local import batches, draw_batches, train
from trainables.method import Limit, Method, Painter, no_global_model
from trainables.params import on, pack, put, put_state, take, take_state, unpack
from trainables.rng import Rng
from trainables.wire import ClientResult, Params, Payload, Upload

#: Labels drawn from a client's own for the G+D loss.
_GD_SAMPLES = 256


@dataclass(frozen=True)
class Config(GeneratorAggregation):
    """FedCG's one weight, its ramp, and what the comparison in FedMD-CG sets otherwise."""

    gamma: float = real(
        1.0,
        low=0.0,
        high=100.0,
        symbol="γ",
        doc="Weight of the extractor's squared distance to the global generator's features.",
        source="FedCG Sec. 4",
        tune=(0.01, 10.0),
    )
    ramp: str = choice(
        "sigmoid",
        ("sigmoid", "polynomial"),
        symbol="γ_r",
        doc="How γ grows over rounds.",
        source="FedCG code, FedMD-CG code",
    )
    ramp_power: float = real(
        3.0, low=0.0, high=10.0, symbol="d", doc="Power of the polynomial ramp.", source="FedMD-CG code"
    )
    dis_lr: float = adam_lr(3e-4, symbol="η_Q", doc="Adam learning rate of the discriminator.", source="FedCG code")
    gan_beta1: float = real(
        0.9,
        low=0.0,
        high=0.999,
        symbol="β1",
        doc="First-moment decay of the Adams of generator and discriminator on the clients; FedCG's code has 0.5.",
        source="FedMD-CG code; FedCG code",
    )
    server_agg: str = other_default(GeneratorAggregation, "server_agg", "kd", tune=("ave_star", "kd", "kdc"))
    server_steps: int = other_default(GeneratorAggregation, "server_steps", 20, source="FedMD-CG code")
    server_lr: float = other_default(GeneratorAggregation, "server_lr", 1e-3, source="FedMD-CG code")


@dataclass(frozen=True)
class State:
    """The global generator and classifier (`head.…`) after `round` rounds."""

    round: int
    generator: Params
    head: Params


@dataclass(frozen=True)
class ClientState:
    """What a client keeps: its extractor, its discriminator and the states of the two Adams."""

    body: Params
    discriminator: Params
    generator_adam: Params
    discriminator_adam: Params


def gamma_of(config: Config, round_: int, rounds: int) -> float:
    """γ_r of round r = 1, 2, … of the R planned ones; 0 in the first."""
    if config.ramp == "polynomial":
        return config.gamma * ramp(round_, rounds, config.ramp_power)
    return config.gamma * (2.0 / (1.0 + math.exp(-10.0 * min((round_ - 1) / 50.0, 1.0))) - 1.0)


def init(config: Config, fed: Federation, rng: Rng) -> State:
    """Draws generator and classifier."""
    return State(0, initial_generator(fed, config.noise_dim), head_of(fed.initial_params()))


def download(config: Config, fed: Federation, state: State, client: int) -> Payload:
    """G, D and the number of the coming round."""
    return pack("generator", state.generator) | pack("head", state.head) | {"round": torch.tensor(state.round + 1)}


def discriminator(fed: Federation, role: str) -> nn.Module:
    """Q's module: the classifier of the federation's architecture with a single output, the logit of "real"."""
    return fed.cached(
        ("discriminator", role), lambda: models.build(fed.model, fed.shape, 1, vocabulary=fed.vocabulary).head
    )


def counts_leave(config: Config) -> bool:
    """Whether clients send counts of the labels they drew: FedMD-CG's distillation weights the teachers by them."""
    return config.server_agg == "kdc"


def client(
    config: Config, fed: Federation, payload: Payload, client_state: ClientState | None, data: ClientData, rng: Rng
) -> ClientResult:
    """Both stages; uploads generator, classifier and, for kdc, the counts of labels drawn in stage 1 `(C,)`."""
    if client_state is None:
        fresh = discriminator(fed, "initial")
        models.initialise(fresh, fed.rng.torch("init", "discriminator"))
        client_state = ClientState(body_of(fed.initial_params()), take(fresh), {}, {})
    module = fed.network()
    put(module, client_state.body | unpack("head", payload))
    objective = _LocalObjective(config, fed, payload, rng.child("stage 1"))
    trained = train(config, module, data, rng, objective)
    model = take(module)
    generator, kept, agreement = _train_gan(config, fed, model, unpack("generator", payload), client_state, data, rng)
    counts, _ = (
        distillation_bases.label_counts(distillation_bases.LabelCounting(), data, trained, None)
        if counts_leave(config)
        else (None, None)
    )
    upload = (
        pack("generator", generator)
        | pack("head", head_of(model))
        | ({} if counts is None else {"label_counts": counts})
    )
    return ClientResult(
        upload=upload,
        client_state=kept,
        model=model,
        loss=float(objective.data_loss) / len(trained.drawn),
        metrics={"gd_loss": agreement},
    )


class _LocalObjective:
    """The loss of stage 1 in one round; without weight it draws nothing. `data_loss` sums up CE(D_i(F_i(x)), y)."""

    def __init__(self, config: Config, fed: Federation, payload: Payload, rng: Rng) -> None:
        self.config, self.gamma = config, gamma_of(config, int(payload["round"]), fed.rounds)
        self.generator = feature_generator(fed, "frozen", config.noise_dim).eval().requires_grad_(False)
        put(self.generator, on(fed.device, unpack("generator", payload)))
        self.noise = rng.torch("noise")
        self.data_loss = torch.zeros((), device=fed.device)

    def __call__(self, module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        assert isinstance(module, models.Model)
        features = module.features(x)
        loss = F.cross_entropy(module.head(features), y)
        self.data_loss += loss.detach()
        if self.gamma > 0:
            loss = loss + self.gamma * F.mse_loss(
                features, self.generator(draw_noise(self.config, len(y), self.noise, x.device), y)
            )
        return loss


def _train_gan(
    config: Config, fed: Federation, model: Params, start: Params, client_state: ClientState, data: ClientData, rng: Rng
) -> tuple[Params, ClientState, float]:
    """Stage 2: the trained generator, what the client keeps, and the G+D loss."""
    module = fed.network(role="frozen")
    put(module.eval(), model)
    generator = feature_generator(fed, "local", config.noise_dim).train().requires_grad_(True)
    critic = discriminator(fed, "local")
    put(generator, on(fed.device, start))
    put(critic, on(fed.device, client_state.discriminator))
    shared: Any = {"betas": (config.gan_beta1, 0.999), "weight_decay": config.gen_weight_decay, "fused": True}
    adam_g = Adam(generator.parameters(), lr=config.gen_lr, **shared)
    adam_q = Adam(critic.parameters(), lr=config.dis_lr, **shared)
    put_state(adam_g, generator, client_state.generator_adam)
    put_state(adam_q, critic, client_state.discriminator_adam)
    rng = rng.child("stage 2")
    noise = rng.torch("noise")
    for x, y in batches(data, draw_batches(config, len(data), data.step_share, rng)):
        with torch.no_grad():
            features = module.features(x)
        made = generator(draw_noise(config, len(y), noise, x.device), y)
        critic.requires_grad_(True)
        loss = discriminator_loss(critic(features), critic(made.detach()))
        adam_q.zero_grad(set_to_none=True)
        loss.backward()
        adam_q.step()
        critic.requires_grad_(False)
        adam_g.zero_grad(set_to_none=True)
        generator_loss(critic(made)).backward()
        adam_g.step()
    random = rng.torch("agreement")
    labels = data.y[torch.randint(len(data), (_GD_SAMPLES,), generator=random)].to(fed.device)
    kept = ClientState(body_of(model), take(critic), take_state(adam_g, generator), take_state(adam_q, critic))
    return take(generator), kept, gd_loss(config, generator, module.head, labels, random)


def discriminator_loss(real_logits: Tensor, made_logits: Tensor) -> Tensor:
    """`-mean [log Q(F(x)) + log(1 - Q(G(z, y)))]` from Q's logits on real and on generated features, `(B, 1)` each."""
    return -(F.logsigmoid(real_logits) + F.logsigmoid(-made_logits)).mean()


def generator_loss(made_logits: Tensor) -> Tensor:
    """`-mean log Q(G(z, y))` from Q's logits `(B, 1)`."""
    return -F.logsigmoid(made_logits).mean()


def server(config: Config, fed: Federation, state: State, uploads: Sequence[Upload], rng: Rng) -> State:
    """The averages, then distillation on uniformly drawn labels (kdc: on p(y), with weights per class)."""
    labels = distillation_bases.label_distribution_of(fed, uploads)
    generator, head = aggregate(config, fed, uploads, labels.weights, labels.probabilities, rng)
    return State(state.round + 1, generator, head)


def painters(config: Config, fed: Federation, state: State, clients: Mapping[int, ClientState]) -> dict[str, Painter]:
    """The server's generator, among what the extractor of the first client that has one gives."""
    own = next((kept for _, kept in sorted(clients.items())), None)
    return {} if own is None else feature_painters(config, fed, state.generator, own.body)


METHOD = Method(
    name="fedcg",
    title="FedCG",
    reference="Wu et al., IJCAI 2022",
    family="model decoupling with generators of features",
    Config=Config,
    State=State,
    ClientState=ClientState,
    init=init,
    download=download,
    client=client,
    server=server,
    recordable_server=True,
    global_model=no_global_model,
    shares_label_counts=counts_leave,
    painters=painters,
    virtual=True,
    follows_plan=lambda config, rounds: config.ramp == "polynomial" and config.ramp_power > 0,
    limits=(
        Limit({"server_steps": 0}, equals="fedcg", other={"server_agg": "ave_star"}),
        Limit({"server_agg": "ave"}, equals="fedcg", other={"server_agg": "ave_star"}),
        Limit({"server_agg": "ave_star", "gamma": 0}, equals="lgfedavg"),
    ),
)
