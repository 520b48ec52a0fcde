"""FedGen: data-free knowledge distillation with a server-side generator of features.

Zhu, Hong, Zhou: Data-Free Knowledge Distillation for Heterogeneous Federated Learning, ICML 2021.

A client's model is f_i = D_i(F_i(x)). The server trains a generator G from (noise, label) to features on which the
clients' classifiers, weighted per label, are right; clients then learn from G's features.

    client   from round 2, in the first guided_steps steps:   z, z' ~ N(0, I), y the batch's labels, y' ~ p(y):
             CE(f_i(x), y) + a_r CE(D_i(G(z', y')), y') + b_r KL(D_i(G(z, y)) ‖ f_i(x)),
             a_r = a·0.98^(r - r₀),   b_r = b·0.98^(r - r₀);   guide_scale = ratio: a_r times B'/B
    server   average by n_i: the whole model (share = full) or the classifier alone (share = head)
             I_g Adam steps on G:   mean_b Σ_i τ_(i,y) CE(D_i(G(z, y)), y) + η L_div                 (teacher = losses)
                               or   mean_b CE(Σ_i n_i/n D_i(G(z, y)), y) + η L_div                   (teacher = logits)
    L_div    exp(-mean_jk d(G_j, G_k) d(z_j, z_k))
    τ, p     τ_(i,y) = n_i^y / Σ_j n_j^y, n_i^y by label_weighting (samples drawn this round);
             p(y) uniform over the labels seen this round (label_draw = seen) or Σ_j n_j^y / n (counts)

    a gen_alpha    b gen_beta    0.98 gen_decay    r₀ gen_decay_from    η div_weight    I_g gen_steps
    B' guide_batch_size, labels y'    B batch_size, labels y

With share = full the average is the global model; with share = head extractors stay at home, there is no global model
and `g_acc_virtual` averages the complete local models. `train_loss` is the cross-entropy on data.

With nu > 0 clients have two architectures, see `trainables.building_blocks.mixed_architectures`: F_i is client i's own,
D_i one linear layer of one shape in all and G makes features of its width, so that the equations of share = head stay
as they are; nothing of F_i can be averaged. HtFLlib's FedGen has clients of any architecture in this way.

Differs from the paper: nothing in its equations. Its code differs in three things, each a switch: noise is drawn from
U[0, 1) (noise = uniform), the term of weight a is multiplied by B'/B (guide_scale = ratio), and rounds are counted from
0, so that decay begins a round later (gen_decay_from = 1). It also keeps both weights above 1e-4, which 10·0.98^r
reaches after 570 rounds. Other comparisons' variants are options. FedKF: gen_alpha 1, gen_beta 0, teacher logits; its
p(y) weighs every client's counts by n_i once more, and its generator ends in a ReLU, neither of which is here.
FedMD-CG: share head, gen_alpha and gen_beta 1 without decay, kd_temperature 10, label_draw counts; its generator also
minimises minus a KL between the clients' and the global classifier, and has two hidden layers, neither of which is
here. HtFLlib: share head, gen_alpha 1, gen_beta and div_weight 0, no decay, teacher logits, label_weighting static,
label_draw counts over all clients, noise uniform, and all local steps guided by as many features as the batch has
samples; there the generator guides from round 1 on and in training mode, by the statistics of the batch it makes, and
counts leave out each client's last incomplete batch; Adam begins anew every round, from the first generator again, as
the trained one is not saved. None of these is here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from search_spaces.errors import sentence
from search_spaces.parameter import choice, integer, real
from trainables.building_blocks import distillation_bases
from trainables.building_blocks import mixed_architectures as mixed
from trainables.building_blocks.generator_aggregation import draw_noise
from trainables.building_blocks.losses import kd_kl, pair_distances
from trainables.building_blocks.mixed_architectures import DeepClients
from trainables.building_blocks.painting import feature_painters
from trainables.building_blocks.parameter_kinds import adam_lr, temperature
from trainables.building_blocks.split_model import (
    body_of,
    feature_generator,
    head_module,
    head_of,
    initial_generator,
    put_head,
)
from trainables.federation import ClientData, Federation, FederationConfig
from trainables.kernels.optimisers import Adam
from trainables.kernels.recorded_steps import memory, recorded
from trainables.local import train
from trainables.method import Limit, Method, Painter
from trainables.models import Model
from trainables.params import average, on, pack, put, put_state, take, take_state, unpack
from trainables.rng import Rng
from trainables.wire import ClientResult, Params, Payload, Upload


@dataclass(frozen=True)
class Config(distillation_bases.LabelCounting, DeepClients):
    """FedGen's weights, generator and variants."""

    share: str = choice(
        "full",
        ("full", "head"),
        doc="What clients send: the whole model, or the classifier alone.",
        source="FedGen Sec. 4, FedMD-CG Sec. 3.1",
    )
    gen_alpha: float = real(
        10.0,
        low=0.0,
        high=1000.0,
        symbol="a",
        doc="Weight of the classifier's cross-entropy on generated features.",
        source="FedGen code",
        tune=(0.1, 100.0),
    )
    gen_beta: float = real(
        10.0,
        low=0.0,
        high=1000.0,
        symbol="b",
        doc="Weight of the local model's distillation from generated features.",
        source="FedGen code",
        tune=(0.1, 100.0),
    )
    gen_decay: float = real(0.98, low=0.0, high=1.0, doc="Factor per round on both weights.", source="FedGen code")
    gen_decay_from: int = integer(
        0,
        low=0,
        high=1,
        symbol="r₀",
        doc="Round, counted from 1, that leaves the weights as they are: none (0), or the first as in the code.",
        source="FedGen code",
    )
    guided_steps: int = integer(
        20,
        low=0,
        high=100_000,
        doc="The generator guides the first so many local steps of a round.",
        source="FedGen code",
    )
    guide_batch_size: int = integer(
        32, low=1, high=4096, log=True, doc="Generated features per local step for the weight a.", source="FedGen code"
    )
    guide_scale: str = choice(
        "one",
        ("one", "ratio"),
        doc="Factor on the term of weight a: 1 as in the paper, or guide_batch_size/batch_size as in the code.",
        source="FedGen Eq. 5; FedGen code",
    )
    kd_temperature: float = temperature(
        1.0, symbol="T", doc="Temperature of the local distillation.", source="FedGen code"
    )
    gen_steps: int = integer(
        50,
        low=0,
        high=1000,
        symbol="I_g",
        doc="Adam steps on the generator per round.",
        source="FedGen code",
        tune=(5, 200),
        work="steps",
    )
    gen_lr: float = adam_lr(3e-4, symbol="η_g", doc="Adam learning rate of the generator.", source="FedGen code")
    gen_lr_decay: float = real(
        0.98, low=0.0, high=1.0, doc="Factor per round on that learning rate.", source="FedGen code"
    )
    gen_weight_decay: float = real(1e-2, low=0.0, high=0.1, doc="Weight decay of that Adam.", source="FedGen code")
    div_weight: float = real(
        1.0,
        low=0.0,
        high=100.0,
        symbol="η",
        doc="Weight of the diversity loss.",
        source="FedGen code",
        tune=(0.1, 10.0),
    )
    diversity_norm: str = choice(
        "mean_abs",
        ("mean_sq", "mean_abs", "l2"),
        doc="Distance between generated features; the noise's is the mean square.",
        source="FedGen code",
    )
    noise_dim: int = integer(
        32, low=1, high=4096, log=True, doc="Width of the generator's noise.", source="FedGen code"
    )
    noise: str = choice(
        "normal",
        ("normal", "uniform"),
        doc="Distribution of the noise: N(0, I), or U[0, 1) as in the code.",
        source="FedGen Eq. 4; FedGen code",
    )
    gen_hidden: int = integer(
        256, low=1, high=8192, log=True, doc="Width of the generator's hidden layer.", source="FedGen code"
    )
    server_batch_size: int = integer(
        128, low=2, high=4096, log=True, doc="Generated features per server step.", source="FedGen code", work="samples"
    )
    teacher: str = choice(
        "losses",
        ("losses", "logits"),
        doc="Per-label weighted losses of the classifiers, or the loss of their averaged logits.",
        source="FedGen Eq. 4, FedKF code",
    )
    label_draw: str = choice(
        "seen",
        ("seen", "counts"),
        symbol="p(y)",
        doc="Labels are uniform over those seen this round, or follow their counts.",
        source="FedGen code, FedMD-CG code",
    )


@dataclass(frozen=True)
class State:
    """What is shared of the model (all of it, or `head.…`) after `round` rounds, the generator, its Adam, and p(y)
    `(C,)`."""

    round: int
    model: Params
    generator: Params
    adam: Params
    label_probabilities: Tensor


@dataclass(frozen=True)
class ClientState:
    """What a client keeps: with share = head its extractor, for cumulative counts the mask of samples drawn so far
    `(n,)`."""

    body: Params | None
    seen: Tensor | None


def init(config: Config, fed: Federation, rng: Rng) -> State:
    """Draws model and generator."""
    model = fed.initial_params()
    return State(
        0,
        model if config.share == "full" else head_of(model),
        initial_generator(fed, config.noise_dim, (config.gen_hidden,)),
        {},
        torch.full((fed.classes,), 1.0 / fed.classes),
    )


def download(config: Config, fed: Federation, state: State, client: int) -> Payload:
    """The shared parameters; from round 2 on also the generator, p(y) and the number of the coming round."""
    guide = pack("generator", state.generator) | {
        "label_probabilities": state.label_probabilities,
        "round": torch.tensor(state.round + 1),
    }
    return pack("model", state.model) | (guide if state.round > 0 else {})


def client(
    config: Config, fed: Federation, payload: Payload, client_state: ClientState | None, data: ClientData, rng: Rng
) -> ClientResult:
    """Guided local training; uploads the shared parameters and, unless label_weighting is `average`, label counts
    `(C,)`."""
    name = mixed.name_of(config, fed, data.client)
    module = mixed.network(fed, name)
    start = unpack("model", payload)
    if config.share == "head":
        start |= (
            client_state.body
            if client_state is not None and client_state.body is not None
            else body_of(mixed.initial_model(fed, name))
        )
    put(module, start)
    objective = _LocalObjective(config, fed, payload, rng.child("guide"))
    trained = train(config, module, data, rng, objective)
    model = take(module)
    shared = model if config.share == "full" else head_of(model)
    counts, seen = distillation_bases.label_counts(
        config, data, trained, client_state.seen if client_state is not None else None
    )
    kept = ClientState(body_of(model) if config.share == "head" else None, seen)
    return ClientResult(
        upload=pack("model", shared) | ({} if counts is None else {"label_counts": counts}),
        model=model,
        client_state=kept if kept != ClientState(None, None) else None,
        loss=float(objective.data_loss) / len(trained.drawn),
    )


class _LocalObjective:
    """The local loss of one round; terms without weight draw nothing. `data_loss` sums up CE(f_i(x), y)."""

    def __init__(self, config: Config, fed: Federation, payload: Payload, rng: Rng) -> None:
        self.config, self.left = config, config.guided_steps if "round" in payload else 0
        self.data_loss = torch.zeros((), device=fed.device)
        if self.left == 0:
            return
        factor = config.gen_decay ** (int(payload["round"]) - config.gen_decay_from)
        ratio = config.guide_batch_size / config.batch_size if config.guide_scale == "ratio" else 1.0
        self.alpha, self.beta, self.probabilities = (
            factor * ratio * config.gen_alpha,
            factor * config.gen_beta,
            payload["label_probabilities"].cpu(),
        )
        self.generator = (
            feature_generator(fed, "frozen", config.noise_dim, (config.gen_hidden,)).eval().requires_grad_(False)
        )
        put(self.generator, on(fed.device, unpack("generator", payload)))
        self.same, self.free, self.labels = (rng.torch(name) for name in ("noise", "free noise", "free labels"))

    def __call__(self, module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        assert isinstance(module, Model)
        logits = module(x)
        loss = F.cross_entropy(logits, y)
        self.data_loss += loss.detach()
        if self.left == 0:
            return loss
        self.left -= 1
        if self.alpha > 0:
            free_y = torch.multinomial(
                self.probabilities, self.config.guide_batch_size, replacement=True, generator=self.labels
            ).to(x.device)
            loss = loss + self.alpha * F.cross_entropy(module.head(self._features(free_y, self.free)), free_y)
        if self.beta > 0:
            with torch.no_grad():
                teacher = module.head(self._features(y, self.same))
            loss = loss + self.beta * kd_kl(logits, teacher, self.config.kd_temperature)
        return loss

    def _features(self, y: Tensor, random: torch.Generator) -> Tensor:
        made: Tensor = self.generator(draw_noise(self.config, len(y), random, y.device), y)
        return made


def server(config: Config, fed: Federation, state: State, uploads: Sequence[Upload], rng: Rng) -> State:
    """The average and the label distribution, then the generator's steps."""
    model = average((unpack("model", u.payload), fed.sizes[u.client]) for u in uploads)
    found = distillation_bases.label_distribution_of(fed, uploads)
    seen = (found.probabilities > 0).float()
    probabilities = found.probabilities if config.label_draw == "counts" else seen / seen.sum()
    generator = feature_generator(fed, "learning", config.noise_dim, (config.gen_hidden,)).train().requires_grad_(True)
    put(generator, on(fed.device, state.generator))
    adam = Adam(
        generator.parameters(),
        lr=config.gen_lr * config.gen_lr_decay**state.round,
        weight_decay=config.gen_weight_decay,
        fused=True,
        capturable=fed.record is not None,
    )
    put_state(adam, generator, state.adam)
    heads = [head_module(fed, f"teacher {place}") for place in range(len(uploads))]
    for head, upload in zip(heads, uploads, strict=True):
        put_head(head, unpack("model", upload.payload))
        head.eval().requires_grad_(False)
    sizes = torch.tensor([fed.sizes[u.client] for u in uploads], dtype=torch.float32, device=fed.device)
    tau = found.weights.to(fed.device)

    def step(z: Tensor, y: Tensor) -> None:
        made = generator(z, y)
        loss = generator_loss(
            config, torch.stack([head(made) for head in heads]), y, tau[:, y], sizes / sizes.sum(), made, z
        )
        adam.zero_grad(set_to_none=True)
        loss.backward()
        adam.step()

    def changed() -> list[Tensor]:
        return [*generator.state_dict().values(), *memory(adam)]

    taken = recorded(step, changed, fed.record, config.gen_steps)
    noise, labels = rng.torch("noise"), rng.torch("labels")
    for _ in range(config.gen_steps):
        z = draw_noise(config, config.server_batch_size, noise, fed.device)
        y = torch.multinomial(probabilities, config.server_batch_size, replacement=True, generator=labels)
        taken(z, y.to(fed.device))
    return State(state.round + 1, model, take(generator), take_state(adam, generator), probabilities)


def generator_loss(
    config: Config, logits: Tensor, y: Tensor, tau: Tensor, shares: Tensor, made: Tensor, z: Tensor
) -> Tensor:
    """The generator's loss: classifiers' logits `(S, B, C)`, y `(B,)`, τ_(i,y) `(S, B)`, n_i/n `(S,)`, features `(B,
    p)`, z `(B, d)`."""
    if config.teacher == "losses":
        rows = F.cross_entropy(logits.flatten(0, 1), y.repeat(len(logits)), reduction="none").view_as(tau)
        loss = (tau * rows).sum(dim=0).mean()
    else:
        loss = F.cross_entropy((shares[:, None, None] * logits).sum(dim=0), y)
    return loss + config.div_weight * feature_diversity(config, made, z) if config.div_weight > 0 else loss


def feature_diversity(config: Config, made: Tensor, z: Tensor) -> Tensor:
    """L_div of features `(B, p)` made from noise `(B, d)`: `exp(-mean_jk d(G_j, G_k) · mean (z_j - z_k)²)`."""
    return torch.exp(-(pair_distances(made, config.diversity_norm) * pair_distances(z, "mean_sq")).mean())


def global_model(config: Config, fed: Federation, state: State) -> Params | None:
    """The averaged model with share = full; none with share = head, where extractors never leave the clients."""
    return state.model if config.share == "full" else None


def painters(config: Config, fed: Federation, state: State, clients: Mapping[int, ClientState]) -> dict[str, Painter]:
    """The server's generator, among what the global extractor gives; with share = head that of the first client."""
    hidden = (config.gen_hidden,)
    if config.share == "full":
        return feature_painters(config, fed, state.generator, body_of(state.model), hidden)
    for client_, kept in sorted(clients.items()):
        if kept.body is not None:
            model = mixed.name_of(config, fed, client_)
            return feature_painters(config, fed, state.generator, kept.body, hidden, model)
    return {}


def check(config: Config, federation: FederationConfig) -> list[str]:
    """Of two architectures only the classifiers can be averaged."""
    found = mixed.unequal_heads(config, federation)
    if config.nu > 0 and config.share == "full":
        must = "head when nu is above 0, as models of two architectures have no average"
        found.append(sentence("share", must, config.share, fix="Use --set share=head."))
    return found


def _keeps_models(config: Config) -> bool:
    return config.nu > 0


METHOD = Method(
    name="fedgen",
    title="FedGen",
    reference="Zhu et al., ICML 2021",
    family="server-side generator of features",
    Config=Config,
    State=State,
    ClientState=ClientState,
    init=init,
    download=download,
    client=client,
    server=server,
    recordable_server=True,
    global_model=global_model,
    shares_label_counts=True,
    painters=painters,
    architectures=mixed.trained_models,
    client_network=mixed.client_network,
    check=check,
    virtual=mixed.one_architecture,
    keeps_models=_keeps_models,
    limits=(
        Limit({"gen_alpha": 0, "gen_beta": 0}, equals="fedavg"),
        Limit({"guided_steps": 0}, equals="fedavg"),
        Limit({"share": "head", "gen_alpha": 0, "gen_beta": 0}, equals="lgfedavg"),
        Limit(
            {"share": "head", "gen_alpha": 0, "gen_beta": 0, "nu": 0.5, "model": "cnn2"},
            equals="lgfedavg",
            other={"nu": 0.5, "model": "cnn2"},
        ),
    ),
)
