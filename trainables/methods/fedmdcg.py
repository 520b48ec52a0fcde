"""FedMD-CG: model decoupling with conditional generators that travel in place of feature extractors.

Luo, Wang, Li, Lan, Gao, Shu: Privacy-Preserving Federated Learning with Consistency via Knowledge Distillation Using
Conditional Generator, 2024.

A client's model is D_i(F_i(x)). It keeps F_i and a generator G_i that imitates F_i's output; G_i and D_i travel.

    stage 1   D_i ← D;  I_c SGD steps on F_i, D_i with the global generator G frozen;  f = F_i(x),  g = G(z, y):
              CE(D_i(f), y) + λ₁ CE(D_i(G(z', y')), y') + λ₂ mean (f - g)² + λ₃ KL(D_i(g) ‖ D_i(f))            (1)-(4)
              z, z' ~ N(0, I), y the batch's labels, y' ~ p(y);   λ₁, λ₂, λ₃ times ((r - 1)/R)^d
    stage 2   I_c Adam steps on G_i with F_i, D_i frozen, fresh batches;  ĝ = G_i(z, y):
              KL(D_i(F_i(x)) ‖ D_i(ĝ)) + λ₄ mean (ĝ - F_i(x))² + λ₅ CE(D_i(ĝ), y) + λ₆ L_div                    (5)-(9)
    L_div     exp(-mean_jk d(ĝ_j, ĝ_k) · c_jk)                                                                  (7), (8)
              div0: c = d(z_j, z_k);   div1: c = d([z_j; y_j], [z_k; y_k]);   div2: c = d(z_j, z_k) exp(a(y_j, y_k))
    server    [G, D] ← Σ_i n_i/n [G_i, D_i];   τ, p(y) from label counts;   distillation by server_agg         (10)-(12)

    λ₁..λ₆ lambda1..lambda6    d ramp_power    R rounds (planned)    I_c local_steps    L_div diversity_kind
    kdc: L_kl,1 + L_kl,2 + L_kl,3, kd: FedCG's step, both in `trainables.building_blocks.generator_aggregation`;
    ave: only the average;
    ave_star: only the average, and λ₁ = λ₃ = 0, so that knowledge returns to clients at the feature level alone

There is no global model; `g_acc_virtual` averages the complete local models. `train_loss` is the cross-entropy on data,
the term that does not change with the ramp. `gd_loss` is CE(D_i(G_i(z, y)), y) after stage 2.

Differs from the paper: teachers are the targets of every KL and detached; d is the mean square and a the mean absolute
difference (the printed norms underflow to 0; `label_dist` gives the sum for a); extractors and generators start from
the federation's common initial ones; the server's Adam starts anew each round, the clients' continue. The authors'
code differs from both: its noise is from U[0, 1) (noise = uniform), and its stage 2 passes I_c times over the batches
of stage 1, each with one draw of noise, and makes a step after each, but sets gradients to 0 only at the beginning of a
pass, so that within a pass they add up. Here, as in Algorithm 1, every step has a fresh batch and its own gradient.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from search_spaces.parameter import choice, real
from trainables.building_blocks import distillation_bases, generator_aggregation
from trainables.building_blocks.generator_aggregation import GeneratorAggregation, aggregate, draw_noise, gd_loss, ramp
from trainables.building_blocks.losses import kd_kl, pair_distances
from trainables.building_blocks.painting import feature_painters
from trainables.building_blocks.parameter_kinds import temperature
from trainables.building_blocks.split_model import body_of, feature_generator, head_of, initial_generator
from trainables.federation import ClientData, Federation
from trainables.kernels.optimisers import Adam
from trainables.local import batches, draw_batches, train
from trainables.method import Limit, Method, Painter, no_global_model
from trainables.models import Model
from trainables.params import on, pack, put, put_state, take, take_state, unpack
from trainables.rng import Rng
from trainables.wire import ClientResult, Params, Payload, Upload

#: Labels drawn from a client's own for the G+D loss.
_GD_SAMPLES = 256


def _weight(symbol: str, doc: str, source: str) -> Any:
    """A weight λ of a part of a loss, beside the part with weight 1."""
    return real(1.0, low=0.0, high=10.0, symbol=symbol, doc=doc, source=source, tune=(0.0, 2.0))


@dataclass(frozen=True)
class Config(distillation_bases.LabelCounting, GeneratorAggregation):
    """FedMD-CG's loss weights, ramp and diversity."""

    lambda1: float = _weight(
        "λ₁", "Weight of the classifier's cross-entropy on the global generator's features.", "FedMD-CG Eq. 4"
    )
    lambda2: float = _weight(
        "λ₂", "Weight of the extractor's squared distance to the global generator's features.", "FedMD-CG Eq. 4"
    )
    lambda3: float = _weight(
        "λ₃", "Weight of the local model's distillation from the global generator's features.", "FedMD-CG Eq. 4"
    )
    lambda4: float = _weight(
        "λ₄", "Weight of the local generator's squared distance to the extractor's features.", "FedMD-CG Eq. 9"
    )
    lambda5: float = _weight("λ₅", "Weight of the cross-entropy on the local generator's features.", "FedMD-CG Eq. 9")
    lambda6: float = _weight("λ₆", "Weight of the local generator's diversity loss.", "FedMD-CG Eq. 9")
    ramp_power: float = real(
        1.0,
        low=0.0,
        high=10.0,
        symbol="d",
        doc="λ₁, λ₂, λ₃ grow as ((r-1)/R)^d; 0: no ramp.",
        source="FedMD-CG App. E.1",
        tune=(0.0, 4.0),
    )
    diversity_kind: str = choice(
        "div2",
        ("div0", "div1", "div2", "none"),
        symbol="L_div",
        doc="Which pairs of generated features must differ most.",
        source="FedMD-CG Table 5",
        tune=True,
    )
    diversity_norm: str = choice(
        "mean_sq",
        ("mean_sq", "mean_abs", "l2"),
        symbol="d(·,·)",
        doc="Distance inside the diversity loss, between features and between their noise alike.",
        source="FedMD-CG code",
    )
    label_dist: str = choice(
        "mean",
        ("mean", "sum"),
        symbol="a",
        doc="L1 distance of one-hot labels in div2: mean over classes, or the paper's sum.",
        source="FedMD-CG Eq. 8",
    )
    kd_temperature_client: float = temperature(
        10.0,
        symbol="T_c",
        doc="Temperature of the KL of stage 1; stage 2 uses 1.",
        source="FedMD-CG code",
        tune=(1.0, 20.0),
    )


@dataclass(frozen=True)
class State:
    """The global generator and classifier (`head.…`) after `round` rounds, and the label distribution p(y) `(C,)`."""

    round: int
    generator: Params
    head: Params
    label_probabilities: Tensor


@dataclass(frozen=True)
class ClientState:
    """What a client keeps: its extractor, its generator, the state of the generator's Adam, and for cumulative counts
    the mask of samples drawn so far `(n,)`."""

    body: Params
    generator: Params
    adam: Params
    seen: Tensor | None


class Weights(NamedTuple):
    """λ₁, λ₂, λ₃ of one round, ramp included."""

    ce: float
    mse: float
    kl: float


def init(config: Config, fed: Federation, rng: Rng) -> State:
    """Draws generator and classifier; all labels equally likely until counts are known."""
    return State(
        0,
        initial_generator(fed, config.noise_dim),
        head_of(fed.initial_params()),
        torch.full((fed.classes,), 1.0 / fed.classes),
    )


def download(config: Config, fed: Federation, state: State, client: int) -> Payload:
    """G, D, p(y) and the number of the coming round."""
    public = {"label_probabilities": state.label_probabilities, "round": torch.tensor(state.round + 1)}
    return pack("generator", state.generator) | pack("head", state.head) | public


def client(
    config: Config, fed: Federation, payload: Payload, client_state: ClientState | None, data: ClientData, rng: Rng
) -> ClientResult:
    """Both stages; uploads the local generator, the local classifier and, unless label_weighting is `average`, label
    counts `(C,)`."""
    if client_state is None:
        client_state = ClientState(body_of(fed.initial_params()), initial_generator(fed, config.noise_dim), {}, None)
    module = fed.network()
    put(module, client_state.body | unpack("head", payload))
    factor = ramp(int(payload["round"]), fed.rounds, config.ramp_power)
    logits_too = config.server_agg != "ave_star"
    weights = Weights(
        logits_too * factor * config.lambda1, factor * config.lambda2, logits_too * factor * config.lambda3
    )
    labels = data.y[draw_batches(config, len(data), data.step_share, rng)]  # of the batches that `train` draws
    objective = _LocalObjective(config, fed, payload, weights, labels, rng.child("stage 1"))
    trained = train(config, module, data, rng, objective)
    model = take(module)
    generator, adam, agreement = _train_generator(config, fed, model, client_state, data, rng)
    counts, seen = distillation_bases.label_counts(config, data, trained, client_state.seen)
    return ClientResult(
        upload=pack("generator", generator)
        | pack("head", head_of(model))
        | ({} if counts is None else {"label_counts": counts}),
        client_state=ClientState(body_of(model), generator, adam, seen),
        model=model,
        loss=float(objective.data_loss) / len(trained.drawn),
        metrics={"gd_loss": agreement},
    )


class _LocalObjective:
    """Eq. (4) of one round, for the batches of labels `(steps, B)`; terms without weight draw nothing. `data_loss` sums
    up CE(D_i(F_i(x)), y)."""

    def __init__(
        self, config: Config, fed: Federation, payload: Payload, weights: Weights, labels: Tensor, rng: Rng
    ) -> None:
        self.config, self.weights, self.device = config, weights, fed.device
        self.probabilities = payload["label_probabilities"].cpu()
        self.generator = feature_generator(fed, "frozen", config.noise_dim).eval().requires_grad_(False)
        put(self.generator, on(fed.device, unpack("generator", payload)))
        names = ("noise", "free noise", "free labels")
        self.same, self.free, self.free_labels = (rng.torch(name) for name in names)
        self.made = self._made(labels.to(fed.device))
        self.data_loss = torch.zeros((), device=fed.device)

    def __call__(self, module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        assert isinstance(module, Model)
        features = module.features(x)
        logits = module.head(features)
        made, free, free_y = next(self.made)
        made_logits = free_logits = None
        if made is not None and self.weights.kl > 0:
            with torch.no_grad():
                made_logits = module.head(made)
        if free is not None:
            free_logits = module.head(free)
        self.data_loss += F.cross_entropy(logits, y).detach()
        return model_loss(self.config, self.weights, features, logits, y, made, made_logits, free_logits, free_y)

    def _made(self, labels: Tensor) -> Iterator[tuple[Tensor | None, Tensor | None, Tensor | None]]:
        """For every step G(z, y) `(B, p)`, and G(z', y') with y' `(B,)`. The frozen generator answers for several steps
        at once, on what is drawn step by step."""
        steps, batch = labels.shape
        without = [None] * steps
        same = self._several(self.same, labels) if self.weights.mse > 0 or self.weights.kl > 0 else without
        if self.weights.ce == 0:
            yield from zip(same, without, without, strict=True)
            return
        draws = (torch.multinomial(self.probabilities, batch, True, generator=self.free_labels) for _ in labels)
        free_labels = torch.stack(list(draws)).to(self.device)
        yield from zip(same, self._several(self.free, free_labels), free_labels, strict=True)

    def _several(self, noise: torch.Generator, labels: Tensor) -> Iterator[Tensor]:
        """G(z, y) `(B, p)` for each batch of labels `(steps, B)`."""
        batch = labels.shape[1]
        for some in labels.split(max(1, generator_aggregation.AT_ONCE // batch)):
            z = torch.cat([draw_noise(self.config, batch, noise, self.device) for _ in some])
            yield from self.generator(z, some.flatten()).split(batch)


def model_loss(
    config: Config,
    weights: Weights,
    features: Tensor,
    logits: Tensor,
    y: Tensor,
    made: Tensor | None,
    made_logits: Tensor | None,
    free_logits: Tensor | None,
    free_y: Tensor | None,
) -> Tensor:
    """Eq. (4). f `(B, p)`, D_i(f) `(B, C)`, y `(B,)`; g `(B, p)`, D_i(g); D_i(G(z', y')), y'. Terms without weight are
    not looked at."""
    loss = F.cross_entropy(logits, y)
    if weights.ce > 0 and free_logits is not None and free_y is not None:
        loss = loss + weights.ce * F.cross_entropy(free_logits, free_y)
    if weights.mse > 0 and made is not None:
        loss = loss + weights.mse * F.mse_loss(features, made.detach())
    if weights.kl > 0 and made_logits is not None:
        loss = loss + weights.kl * kd_kl(logits, made_logits, config.kd_temperature_client)
    return loss


def _train_generator(
    config: Config, fed: Federation, model: Params, client_state: ClientState, data: ClientData, rng: Rng
) -> tuple[Params, Params, float]:
    """Stage 2: the trained generator, its Adam's state, and the G+D loss."""
    module = fed.network(role="frozen")
    put(module.eval().requires_grad_(False), model)
    generator = feature_generator(fed, "local", config.noise_dim).train().requires_grad_(True)
    put(generator, on(fed.device, client_state.generator))
    adam = Adam(generator.parameters(), lr=config.gen_lr, weight_decay=config.gen_weight_decay, fused=True)
    put_state(adam, generator, client_state.adam)
    rng = rng.child("stage 2")
    noise = rng.torch("noise")
    for x, y in batches(data, draw_batches(config, len(data), data.step_share, rng)):
        z = draw_noise(config, len(y), noise, x.device)
        with torch.no_grad():
            features = module.features(x)
            logits = module.head(features)
        made = generator(z, y)
        loss = generator_loss(config, made, module.head(made), features, logits, z, y)
        adam.zero_grad(set_to_none=True)
        loss.backward()
        adam.step()
    random = rng.torch("agreement")
    labels = data.y[torch.randint(len(data), (_GD_SAMPLES,), generator=random)].to(fed.device)
    return take(generator), take_state(adam, generator), gd_loss(config, generator, module.head, labels, random)


def generator_loss(
    config: Config, made: Tensor, made_logits: Tensor, features: Tensor, logits: Tensor, z: Tensor, y: Tensor
) -> Tensor:
    """Eq. (9). ĝ `(B, p)`, D_i(ĝ) `(B, C)`, F_i(x) `(B, p)`, D_i(F_i(x)) `(B, C)`, z `(B, d)`, y `(B,)`."""
    loss = kd_kl(made_logits, logits)
    if config.lambda4 > 0:
        loss = loss + config.lambda4 * F.mse_loss(made, features.detach())
    if config.lambda5 > 0:
        loss = loss + config.lambda5 * F.cross_entropy(made_logits, y)
    if config.lambda6 > 0 and config.diversity_kind != "none":
        loss = loss + config.lambda6 * diversity_loss(config, made, z, F.one_hot(y, made_logits.shape[1]).to(z.dtype))
    return loss


def diversity_loss(config: Config, made: Tensor, z: Tensor, labels: Tensor) -> Tensor:
    """Eqs. (7), (8): ĝ `(B, p)`, z `(B, d)`, one-hot labels `(B, C)`; in (0, 1]."""
    weight = pair_distances(
        torch.cat([z, labels], dim=1) if config.diversity_kind == "div1" else z, config.diversity_norm
    )
    if config.diversity_kind == "div2":
        between = pair_distances(labels, "mean_abs")
        weight = weight * torch.exp(between * labels.shape[1] if config.label_dist == "sum" else between)
    return torch.exp(-(pair_distances(made, config.diversity_norm) * weight).mean())


def server(config: Config, fed: Federation, state: State, uploads: Sequence[Upload], rng: Rng) -> State:
    """The averages and the label distribution, then distillation."""
    labels = distillation_bases.label_distribution_of(fed, uploads)
    generator, head = aggregate(config, fed, uploads, labels.weights, labels.probabilities, rng)
    return State(state.round + 1, generator, head, labels.probabilities)


def painters(config: Config, fed: Federation, state: State, clients: Mapping[int, ClientState]) -> dict[str, Painter]:
    """The local generator of the first client that has one, among what that client's extractor gives (Fig. 2)."""
    own = next((kept for _, kept in sorted(clients.items())), None)
    return {} if own is None else feature_painters(config, fed, own.generator, own.body)


METHOD = Method(
    name="fedmdcg",
    title="FedMD-CG",
    reference="Luo et al., 2024",
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
    shares_label_counts=True,
    painters=painters,
    virtual=True,
    follows_plan=lambda config, rounds: config.ramp_power > 0,
    limits=(
        Limit({"server_steps": 0}, equals="fedmdcg", other={"server_agg": "ave"}),
        Limit({"server_agg": "ave_star"}, equals="fedmdcg", other={"server_agg": "ave", "lambda1": 0, "lambda3": 0}),
        Limit({"server_agg": "ave", "lambda1": 0, "lambda2": 0, "lambda3": 0}, equals="lgfedavg"),
    ),
)
