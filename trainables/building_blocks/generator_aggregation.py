"""What FedMD-CG and FedCG share: features made by generators on both sides, and the server's aggregation of generators
and classifiers.

Local generators G_i and classifiers D_i are averaged by n_i into G and D. Then, on draws (z, y) that are the same for
all clients, with teachers ρ_i = D_i(G_i(z, y)) that are never differentiated:

    kd      KL(Σ_i n_i/n ρ_i ‖ D(G(z, y)))                                      trains G and D       (FedCG)
    kdc     L_kl,1 = Σ_i τ_(i,y) KL(ρ_i ‖ D  (G  (z, y)))                       trains G and D       (FedMD-CG Eq. 10)
          + L_kl,2 = Σ_i τ_(i,y) KL(ρ_i ‖ D  (G_i(z, y)))                       trains D             (FedMD-CG Eq. 11)
          + L_kl,3 = Σ_i τ_(i,y) KL(ρ_i ‖ D_i(G  (z, y)))                       trains G             (FedMD-CG Eq. 11)
    ave, ave_star   nothing more than the average

KL compares softmaxes of logits divided by `kd_temperature_server`, and is averaged over the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from search_spaces.parameter import choice, integer, real
from trainables.building_blocks.losses import kl_rows
from trainables.building_blocks.parameter_kinds import adam_lr, temperature
from trainables.building_blocks.split_model import feature_generator, head_module, put_head, take_head
from trainables.federation import Federation
from trainables.generators.feature import FeatureGenerator
from trainables.kernels.optimisers import Adam
from trainables.kernels.recorded_steps import memory, recorded
from trainables.local import LocalTraining
from trainables.params import average, on, put, take, unpack
from trainables.rng import Rng
from trainables.wire import Params, Upload

AGGREGATIONS = ("ave_star", "ave", "kd", "kdc")

#: Samples for which frozen generators are asked at once; bounds memory at this many rows of features per client.
AT_ONCE = 1024


@dataclass(frozen=True)
class GeneratorAggregation(LocalTraining):
    """Local training in FedMD-CG's set-up, generators of features, and the server's distillation."""

    lr: float = real(
        0.05,
        low=1e-6,
        high=10.0,
        log=True,
        symbol="η_c^l",
        doc="Learning rate of the clients' SGD on the local model.",
        source="FedMD-CG App. E.1",
        tune=(5e-3, 0.2),
    )
    noise_dim: int = integer(
        128,
        low=1,
        high=4096,
        log=True,
        symbol="dim z",
        doc="Width of the generators' noise.",
        source="FedMD-CG App. E.1",
    )
    noise: str = choice(
        "normal",
        ("normal", "uniform"),
        doc="Distribution of the noise: N(0, I), or U[0, 1) as in the code.",
        source="FedMD-CG Eq. 2",
    )
    gen_lr: float = adam_lr(
        3e-4, symbol="η_c^w", doc="Adam learning rate of the local generator.", source="FedMD-CG App. E.1"
    )
    gen_weight_decay: float = real(
        1e-4, low=0.0, high=0.1, doc="Weight decay of all Adam optimisers.", source="FedMD-CG App. E.1"
    )
    server_agg: str = choice(
        "kdc",
        AGGREGATIONS,
        doc="What the server does with generators and classifiers.",
        source="FedMD-CG Table 3",
        tune=True,
    )
    server_steps: int = integer(
        50,
        low=0,
        high=1000,
        symbol="I_s",
        doc="Adam steps of the server's distillation.",
        source="FedMD-CG App. E.1",
        tune=(5, 200),
        work="steps",
    )
    server_lr: float = adam_lr(
        3e-4, symbol="η_s", doc="Adam learning rate of the server's distillation.", source="FedMD-CG App. E.1"
    )
    server_batch_size: int = integer(
        64,
        low=2,
        high=4096,
        log=True,
        doc="Synthetic samples per server step.",
        source="FedMD-CG App. E.1",
        work="samples",
    )
    kd_temperature_server: float = temperature(
        10.0, symbol="T_s", doc="Temperature of the server's KL terms.", source="FedMD-CG code", tune=(1.0, 20.0)
    )
    server_kl_norm: str = choice(
        "batch",
        ("batch", "element"),
        doc="The server's KL is averaged over the batch, or over classes too as in the code.",
        source="FedMD-CG code",
    )


class HasNoise(Protocol):
    """A configuration that says how noise for features is drawn."""

    @property
    def noise(self) -> str: ...

    @property
    def noise_dim(self) -> int: ...


def draw_noise(config: HasNoise, samples: int, generator: torch.Generator, device: torch.device) -> Tensor:
    """z `(samples, d)` of the configured distribution."""
    draw = torch.randn if config.noise == "normal" else torch.rand
    return draw(samples, config.noise_dim, generator=generator).to(device)


def ramp(round_: int, rounds: int, power: float) -> float:
    """`((r - 1)/R)^d` of round r of the R planned ones: 0 in the first round (1 throughout for d = 0)."""
    return float(((round_ - 1) / rounds) ** power)


def gd_loss(
    config: GeneratorAggregation, generator: FeatureGenerator, head: nn.Module, y: Tensor, random: torch.Generator
) -> float:
    """Mean `CE(D_i(G_i(z, y)), y)` over labels `(B,)`: how far a client's classifier and its generator agree (FedMD-CG
    Fig. 5)."""
    with torch.no_grad():
        made = generator.eval()(draw_noise(config, len(y), random, y.device), y)
        return float(F.cross_entropy(head(made), y))


def aggregate(
    config: GeneratorAggregation,
    fed: Federation,
    uploads: Sequence[Upload],
    tau: Tensor | None,
    probabilities: Tensor,
    rng: Rng,
) -> tuple[Params, Params]:
    """The global generator and classifier made of the round's uploads (entries `generator/…` and `head/…`).

    `tau` `(S, C)`: weight of each client per class, needed for kdc. `probabilities` `(C,)`: p(y) of the labels
    drawn."""
    sizes = [fed.sizes[u.client] for u in uploads]
    generator, head = (
        average((unpack(part, u.payload), n) for u, n in zip(uploads, sizes, strict=True))
        for part in ("generator", "head")
    )
    if config.server_agg in ("ave", "ave_star") or config.server_steps == 0:
        return generator, head
    learner, classifier = feature_generator(fed, "global", config.noise_dim), head_module(fed, "global")
    put(learner, on(fed.device, generator))
    put_head(classifier, on(fed.device, head))
    learner.train().requires_grad_(True)
    classifier.train().requires_grad_(True)
    adam = Adam(
        [*learner.parameters(), *classifier.parameters()],
        lr=config.server_lr,
        weight_decay=config.gen_weight_decay,
        fused=True,
        capturable=fed.record is not None,
    )
    shares = torch.tensor(sizes, dtype=torch.float32, device=fed.device) / sum(sizes)
    teachers = _Teachers(config, fed, uploads)
    tau = None if tau is None else tau.to(fed.device)

    def step(z: Tensor, y: Tensor, made: Tensor, rho: Tensor) -> None:
        own = learner(z, y)
        if config.server_agg == "kd":
            loss = kd_loss(rho, classifier(own), shares, config.kd_temperature_server)
        else:
            assert tau is not None
            first, second, third = kdc_losses(
                own, made, rho, classifier, teachers.heads, tau[:, y], config.kd_temperature_server
            )
            loss = first + second + third
        if config.server_kl_norm == "element":
            loss = loss / fed.classes
        adam.zero_grad(set_to_none=True)
        loss.backward()
        adam.step()

    def changed() -> list[Tensor]:
        return [*learner.state_dict().values(), *classifier.state_dict().values(), *memory(adam)]

    taken = recorded(step, changed, fed.record, config.server_steps)
    for given in teachers.batches(probabilities, rng):
        taken(*given)
    return take(learner), take_head(classifier)


def kd_loss(rho: Tensor, logits: Tensor, shares: Tensor, temperature: float) -> Tensor:
    """`KL(softmax_T(Σ_i n_i/n ρ_i) ‖ softmax_T(D(G)))`: teachers `(S, B, C)`, logits `(B, C)`, shares n_i/n `(S,)`."""
    return kl_rows((shares[:, None, None] * rho).sum(dim=0).detach(), logits, temperature).mean()


def kdc_losses(
    own: Tensor,
    made: Tensor,
    rho: Tensor,
    classifier: nn.Module,
    heads: Callable[[Tensor], Tensor],
    tau: Tensor,
    temperature: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """L_kl,1 to L_kl,3, FedMD-CG Eqs. (10), (11).

    Features G(z, y) `(B, p)` and G_i(z, y) `(S, B, p)`, teachers ρ_i `(S, B, C)`, D, all D_i as one function
    (`beside`), weights τ_(i,y) `(S, B)`."""
    logits = torch.stack([classifier(own).expand_as(rho), classifier(made.detach()), heads(own)])
    first, second, third = (tau * kl_rows(rho.detach(), logits, temperature)).sum(dim=(1, 2)) / rho.shape[1]
    return first, second, third


def one_by_one(heads: Sequence[nn.Module]) -> Callable[[Tensor], Tensor]:
    """The classifiers D_i as one function of features, `(B, p)` for all or `(S, B, p)`, to logits `(S, B, C)`."""
    return lambda x: torch.stack([head(own) for head, own in zip(heads, x.expand(len(heads), -1, -1), strict=True)])


def beside(heads: Sequence[nn.Module]) -> Callable[[Tensor], Tensor]:
    """What `one_by_one` gives for frozen classifiers, to rounding: their linear layers are one product for all."""
    chains = [list(head) if isinstance(head, nn.Sequential) else [head] for head in heads]
    # One that computes in bfloat16 has a `forward` of its own.
    if "forward" in vars(heads[0]) or any(type(layer) not in (nn.Linear, nn.ReLU) for layer in chains[0]):
        return one_by_one(heads)
    layers: list[tuple[Tensor, Tensor] | None] = []
    for alike in zip(*chains, strict=True):
        linear = [layer for layer in alike if isinstance(layer, nn.Linear)]
        if linear:
            weights, biases = ([getattr(layer, name).detach() for layer in linear] for name in ("weight", "bias"))
            layers.append((torch.stack(biases)[:, None], torch.stack(weights).transpose(1, 2)))
        else:
            layers.append(None)

    def run(x: Tensor) -> Tensor:
        x = x.expand(len(heads), -1, -1)
        for layer in layers:
            x = F.relu(x) if layer is None else torch.baddbmm(layer[0], x, layer[1])
        return x

    return run


class _Teachers:
    """The round's local generators and classifiers, frozen, in evaluation mode."""

    def __init__(self, config: GeneratorAggregation, fed: Federation, uploads: Sequence[Upload]) -> None:
        self.config, self.fed = config, fed
        self.generators = [unpack("generator", u.payload) for u in uploads]
        heads = [head_module(fed, f"teacher {place}") for place in range(len(uploads))]
        for head, upload in zip(heads, uploads, strict=True):
            put_head(head, unpack("head", upload.payload))
            head.eval().requires_grad_(False)
        #: All D_i as one function.
        self.heads = beside(heads)

    def batches(self, probabilities: Tensor, rng: Rng) -> Iterable[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """For every server step: z `(B, d)`, y `(B,)`, the local generators' features `(S, B, p)` and logits ρ `(S, B,
        C)`.

        Frozen teachers answer for several steps at once: generators in evaluation mode treat each sample by itself."""
        config, batch = self.config, self.config.server_batch_size
        noise, labels = rng.torch("noise"), rng.torch("labels")
        local = feature_generator(self.fed, "teacher", config.noise_dim).eval()
        at_once = max(1, AT_ONCE // batch)
        for first in range(0, config.server_steps, at_once):
            samples = min(at_once, config.server_steps - first) * batch
            z = draw_noise(config, samples, noise, self.fed.device)
            y = torch.multinomial(probabilities, samples, replacement=True, generator=labels).to(self.fed.device)
            features = []
            with torch.no_grad():
                for params in self.generators:
                    put(local, params)
                    features.append(local(z, y))
                made = torch.stack(features)
                logits = self.heads(made)
            yield from zip(
                z.split(batch), y.split(batch), made.split(batch, dim=1), logits.split(batch, dim=1), strict=True
            )
