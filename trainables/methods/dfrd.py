"""DFRD: data-free robustness distillation for heterogeneous federated learning.

Luo, Wang, Fu, Li, Lan, Gao: DFRD: Data-Free Robustness Distillation for Heterogeneous Federated Learning, NeurIPS 2023.

A conditional generator on the server learns where the clients' models, weighted per label, are right and the global
model is wrong; the global model is distilled on its images and on those of its moving average.

    base      θ ← preliminary global model of fedavg | heterofl | feddropout | fedrolex, Eq. (1); none: not aggregated
    u_T       Σ_i τ_(i,y) f_i(s; θ_i),   s = G(h; w),  h = o(z, y),  z ~ N(0, I),  y ~ p(y)
    L_fid     CE(u_T, y)                                                                       (2)
    ε         all: 1;  disagree: argmax u_S ≠ argmax u_T;  targeted: argmax u_T = y ≠ argmax u_S
    L_tran    -ε KL(softmax(u_S/T) ‖ softmax(u_T/T)),   u_S = f(s; θ)                          (3)
    L_div     exp(-mean_jk d(s_j, s_k) d(h_j, h_k))                                            (4)
    L_gen     L_fid + β_tran L_tran + β_div L_div                                              (5)
    w̃        λ w̃ + (1-λ) w                                                                  (6)
    L_md      KL(u_T(s) ‖ f(s; θ)) + α KL(u_T(s̃) ‖ f(s̃; θ)),   s̃ = G(o(z̃, ỹ); w̃)          (7)
    τ, p      τ_(i,y) = n_i^y / Σ_j n_j^y,  p(y) = Σ_j n_j^y / Σ_y Σ_j n_j^y                   (8)

    α alpha    λ lambda    β_tran beta_tran    β_div beta_div    o merge_op    T kd_temperature
    I, I_g, I_d    server_iters × (gen_steps of Adam on w and the label embedding, distill_steps of SGD on θ)
    n_i^y      label_weighting: samples of class y drawn this round (dynamic), held (static), not counted (average)

Differs from the paper: distances in L_div are mean squares (the printed norms underflow to 0); the student is detached in
L_tran and the teacher in L_md; L_tran is averaged over the whole batch; optimisers live for the round. Each has a switch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from search_spaces.errors import sentence
from search_spaces.parameter import choice, flag, integer, real
from trainables import partial, submodel
from trainables.distillation import (
    Draws,
    LabelLaw,
    ServerDistillation,
    Teachers,
    generator_module,
    label_law,
    moving_average,
    to_models,
)
from trainables.federation import ClientData, Federation, FederationConfig
from trainables.generators import Generator, initialise
from trainables.local import LocalWork
from trainables.losses import diversity, kd_kl, kl_rows
from trainables.method import ClientResult, Limit, Method, Params, Payload, Upload
from trainables.params import on, pack, put, take, unpack
from trainables.rng import Rng

#: How each base cuts sub-models; fedavg's clients all have width 1, for which every extraction is the whole model.
EXTRACTION = {"fedavg": "static", "heterofl": "static", "feddropout": "random", "fedrolex": "rolling", "none": "static"}


@dataclass(frozen=True)
class Config(ServerDistillation, partial.PartialTraining):
    """DFRD's own weights and switches, on top of its base and of server-side distillation."""

    base: str = choice("fedavg", tuple(EXTRACTION), doc="What makes the preliminary global model; none: data-free mode.", source="DFRD Tables 1, 2")
    alpha: float = real(0.5, low=0.0, high=2.0, symbol="α", doc="Weight of distillation on the averaged generator's images.", source="DFRD Eq. 7", tune=True)
    lambda_: float = real(0.5, low=0.0, high=0.99, symbol="λ", doc="Momentum of the generator's moving average.", source="DFRD Eq. 6", tune=True)
    beta_tran: float = real(1.0, low=0.0, high=2.0, symbol="β_tran", doc="Weight of the transferability loss.", source="DFRD Eq. 5", tune=True)
    beta_div: float = real(1.0, low=0.0, high=2.0, symbol="β_div", doc="Weight of the diversity loss.", source="DFRD Eq. 5", tune=True)
    beta_ey: float = real(0.0, low=0.0, high=1.0, symbol="β_ey", doc="Weight of a hinge on the label embedding's norm.", source="DFRD code")
    embed_norm_scale: float = real(1.0, low=0.0, high=100.0, symbol="γ", doc="The hinge starts at γ√d.", source="DFRD code")
    use_ema: bool = flag(True, doc="Also distil on the averaged generator's images.", source="DFRD Table 5", tune=True)
    transferability: str = choice("targeted", ("all", "disagree", "targeted"), symbol="ε", doc="Which samples count in L_tran.",
                                  source="DFRD Table 3", tune=True)
    label_weighting: str = choice("dynamic", ("average", "static", "dynamic"), symbol="τ", doc="Counts behind τ and p(y).", source="DFRD Table 10", tune=True)
    label_smoothing_count: int = integer(0, low=0, high=1000, doc="Added to every class's count; the releases add 1.", source="DFRD code")
    counter_window: str = choice("round", ("round", "cumulative"), doc="Dynamic counts: this round's draws, or all draws so far.", source="DFRD code")
    tran_grad: str = choice("ensemble", ("ensemble", "both"), doc="L_tran's gradient runs through the ensemble only, or the student too.", source="DFDG code")
    tran_norm: str = choice("batch", ("batch", "selected"), doc="L_tran is divided by the batch, or by the samples with ε = 1.", source="DFDG code")
    ema_update: str = choice("round_end", ("round_end", "before_distillation"), doc="When Eq. 6 runs, once per round.", source="DFRD Eq. 6")


@dataclass(frozen=True)
class State:
    """Global model θ, generator w (label embedding included) and its moving average w̃ after `round` rounds."""

    round: int
    model: Params
    generator: Params
    ema: Params


@dataclass(frozen=True)
class Memory:
    """What a client keeps: its model in data-free mode, the samples drawn so far for cumulative counts `(n,)`."""

    model: Params | None
    seen: Tensor | None


def check(config: Config, federation: FederationConfig) -> list[str]:
    """FedAvg as a base needs clients of equal width."""
    if config.base == "fedavg" and federation.rho > 0:
        return [sentence("rho", "0 when base is fedavg, whose clients all train the same model", federation.rho,
                         fix="Use --set base=fedrolex, heterofl or feddropout.")]
    return []


def init(config: Config, fed: Federation, rng: Rng) -> State:
    """Draws the model (the base's own initial model) and the generator; w̃ = w."""
    module = generator_module(config, fed, "G")
    initialise(module, fed.rng.torch("init", "generator"))
    return State(0, fed.initial_params(), take(module), take(module))


def download(config: Config, fed: Federation, state: State, client: int) -> Payload:
    """The base's download; in data-free mode a model in the first round and nothing after."""
    if config.base == "none" and state.round > 0:
        return {}
    chosen = submodel.channels(fed, EXTRACTION[config.base], state.round + 1, client)
    return pack("model", submodel.extract(fed, state.model, chosen))


def client(config: Config, fed: Federation, payload: Payload, memory: Memory | None, data: ClientData, rng: Rng) -> ClientResult:
    """The base's local training; uploads the model and, unless weighting is `average`, the label counts `(C,)`."""
    start = unpack("model", payload)
    if not start:
        # A client that joins late in data-free mode has never been sent a model: it draws its own.
        start = memory.model if memory is not None and memory.model is not None else fed.initial_params("late", width=fed.widths[data.client])
    model, work = partial.train_submodel(config, fed, start, data, rng)
    counts, seen = label_counts(config, data, work, memory)
    owned = {"owned": data.label_counts() > 0} if config.own_class_rows_only else {}
    kept = Memory(model if config.base == "none" else None, seen)
    return ClientResult(
        upload=pack("model", model) | ({} if counts is None else {"label_counts": counts}) | owned,
        memory=kept if kept != Memory(None, None) else None, model=model, loss=work.loss,
    )


def label_counts(config: Config, data: ClientData, work: LocalWork, memory: Memory | None) -> tuple[Tensor | None, Tensor | None]:
    """n_i^y `(C,)` of the configured weighting (None: not counted), and the mask of samples drawn so far (cumulative window)."""
    if config.label_weighting == "average":
        return None, None
    if config.label_weighting == "static":
        return data.label_counts() + config.label_smoothing_count, None
    seen = torch.zeros(len(data), dtype=torch.bool)
    if config.counter_window == "cumulative" and memory is not None and memory.seen is not None:
        seen = memory.seen.clone()
    seen[work.drawn.flatten()] = True
    counts = torch.bincount(data.y[seen], minlength=data.classes) + config.label_smoothing_count
    return counts, seen if config.counter_window == "cumulative" else None


def server(config: Config, fed: Federation, state: State, uploads: Sequence[Upload], rng: Rng) -> State:
    """Aggregates with the base, then alternates generator and distillation phases."""
    now = state.round + 1
    model = state.model if config.base == "none" else partial.aggregate(config, fed, EXTRACTION[config.base], now, state.model, uploads)
    if config.server_iters == 0:
        return State(now, model, state.generator, moving_average(state.ema, state.generator, config.lambda_))
    counts = None if config.label_weighting == "average" else torch.stack([u.payload["label_counts"] for u in uploads])
    law = label_law(counts, len(uploads), fed.classes)
    phases = _Phases(config, fed, Teachers(fed, uploads), law, model, state, rng)
    ema = state.ema
    for iteration in range(config.server_iters):
        phases.generator_phase()
        if iteration == 0 and config.ema_update == "before_distillation":
            ema = moving_average(ema, take(phases.generator), config.lambda_)
            put(phases.averaged, ema)
        phases.distillation_phase()
    generator = take(phases.generator)
    if config.ema_update == "round_end":
        ema = moving_average(ema, generator, config.lambda_)
    return State(now, take(phases.student), generator, ema)


class _Phases:
    """The server's working modules during one round: steps 7 of the algorithm, one method per phase."""

    def __init__(self, config: Config, fed: Federation, teachers: Teachers, law: LabelLaw, model: Params, state: State, rng: Rng) -> None:
        self.config, self.fed, self.teachers = config, fed, teachers
        self.tau = law.weights.to(fed.device)
        self.student = fed.network(slot="student")
        self.generator = generator_module(config, fed, "G")
        self.averaged = generator_module(config, fed, "averaged G").eval().requires_grad_(False)
        put(self.student, model)
        put(self.generator, on(fed.device, state.generator))
        put(self.averaged, on(fed.device, state.ema))

        def draws(name: str) -> Draws:
            return Draws(config.server_batch_size, config.noise_dim, law.law, fed.device, rng.child(name), config.resample_noise)

        # Three streams, so that leaving out one term leaves the draws of the others alone.
        self.for_generator, self.for_student, self.for_ema = draws("generator"), draws("distillation"), draws("ema")
        self._new_optimisers()

    def _new_optimisers(self) -> None:
        c = self.config
        self.adam = torch.optim.Adam(self.generator.parameters(), lr=c.gen_lr, betas=(c.gen_beta1, c.gen_beta2), fused=True)
        self.sgd = torch.optim.SGD(self.student.parameters(), lr=c.distill_lr, momentum=c.distill_momentum, weight_decay=c.distill_weight_decay, fused=True)

    def _begin(self) -> None:
        for draws in (self.for_generator, self.for_student, self.for_ema):
            draws.renew()
        if self.config.reset_optim_each_phase:
            self._new_optimisers()

    def generator_phase(self) -> None:
        """I_g Adam steps on w; θ frozen and in evaluation mode."""
        self._begin()
        self.student.eval().requires_grad_(False)
        self.generator.train()
        for _ in range(self.config.gen_steps):
            z, y = self.for_generator.next()
            h = self.generator.merge(z, y)
            images = self.generator(h)
            seen = to_models(self.config, self.fed, images)
            ensemble = self.teachers.logits(seen, self.tau[:, y])
            with torch.set_grad_enabled(self.config.tran_grad == "both"):
                student = self.student(seen)
            loss = generator_loss(self.config, ensemble, student, y, images, h)
            if self.config.beta_ey > 0 and self.generator.embedding is not None:
                loss = loss + self.config.beta_ey * embedding_hinge(self.generator.embedding(y), self.config.embed_norm_scale)
            self.adam.zero_grad(set_to_none=True)
            loss.backward()
            self.adam.step()

    def distillation_phase(self) -> None:
        """I_d SGD steps on θ in training mode; both generators frozen and in evaluation mode."""
        self._begin()
        self.student.train().requires_grad_(True)
        self.generator.eval()
        c = self.config
        for _ in range(c.distill_steps):
            loss = self._distil(self.generator, self.for_student)
            if c.use_ema and c.alpha > 0:
                loss = loss + c.alpha * self._distil(self.averaged, self.for_ema)
            self.sgd.zero_grad(set_to_none=True)
            loss.backward()
            self.sgd.step()

    def _distil(self, generator: Generator, draws: Draws) -> Tensor:
        z, y = draws.next()
        with torch.no_grad():
            images = to_models(self.config, self.fed, generator(generator.merge(z, y)))
            ensemble = self.teachers.logits(images, self.tau[:, y])
        return kd_kl(self.student(images), ensemble, self.config.kd_temperature, self.config.kl_direction)


def transfer_mask(rule: str, ensemble: Tensor, student: Tensor, y: Tensor) -> Tensor:
    """ε `(B,)` from the ensemble's and the student's logits `(B, C)` and the labels `(B,)`; Table 3."""
    if rule == "all":
        return torch.ones_like(y, dtype=ensemble.dtype)
    theirs, ours = ensemble.argmax(dim=1), student.argmax(dim=1)
    chosen = ours != theirs if rule == "disagree" else (theirs == y) & (ours != y)
    return chosen.to(ensemble.dtype)


def transferability_loss(config: Config, ensemble: Tensor, student: Tensor, y: Tensor) -> Tensor:
    """Eq. (3): `-Σ_b ε_b KL(softmax_T(u_S) ‖ softmax_T(u_T))_b`, divided by B or by the number of selected samples (at least 1)."""
    mask = transfer_mask(config.transferability, ensemble.detach(), student.detach(), y)
    rows = kl_rows(student if config.tran_grad == "both" else student.detach(), ensemble, config.kd_temperature)
    count = mask.sum().clamp(min=1) if config.tran_norm == "selected" else float(len(y))
    return -(mask * rows).sum() / count


def generator_loss(config: Config, ensemble: Tensor, student: Tensor, y: Tensor, images: Tensor, merged: Tensor) -> Tensor:
    """Eq. (5). `ensemble`, `student` `(B, C)` logits, `images` `(B, ch, H, W)`, `merged` h `(B, d')`."""
    loss = F.cross_entropy(ensemble, y)
    if config.beta_tran > 0:
        loss = loss + config.beta_tran * transferability_loss(config, ensemble, student, y)
    if config.beta_div > 0:
        loss = loss + config.beta_div * diversity(images, merged, config.diversity_norm)
    return loss


def embedding_hinge(embedded: Tensor, scale: float) -> Tensor:
    """`mean_b max(0, ‖E(y_b)‖₂ - γ√d)` over embedded labels `(B, d)`; keeps L_div from being met by a growing embedding."""
    return (embedded.norm(dim=1) - scale * embedded.shape[1] ** 0.5).clamp(min=0).mean()


def global_model(config: Config, fed: Federation, state: State) -> Params:
    """θ."""
    return state.model


METHOD = Method(
    name="dfrd",
    title="DFRD",
    reference="Luo et al., NeurIPS 2023",
    family="server-side data-free distillation",
    Config=Config,
    State=State,
    Memory=Memory,
    init=init,
    download=download,
    client=client,
    server=server,
    global_model=global_model,
    widths="any",
    shares_label_counts=True,
    limits=(
        Limit({"server_iters": 0, "base": "fedavg"}, equals="fedavg"),
        Limit({"server_iters": 0, "base": "heterofl", "rho": 5}, equals="heterofl", other={"rho": 5}),
        Limit({"server_iters": 0, "base": "feddropout", "rho": 5}, equals="feddropout", other={"rho": 5}),
        Limit({"server_iters": 0, "base": "fedrolex", "rho": 5}, equals="fedrolex", other={"rho": 5}),
        Limit({"alpha": 0, "base": "fedavg"}, equals="dfrd", other={"use_ema": False, "base": "fedavg"}),
    ),
    check=check,
)
