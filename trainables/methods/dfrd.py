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
    w̃         λ w̃ + (1-λ) w                                                                    (6)
    L_md      KL(u_T(s) ‖ f(s; θ)) + α KL(u_T(s̃) ‖ f(s̃; θ)),   s̃ = G(o(z̃, ỹ); w̃)               (7)
    τ, p      τ_(i,y) = n_i^y / Σ_j n_j^y,  p(y) = Σ_j n_j^y / Σ_y Σ_j n_j^y                   (8)

    α alpha    λ lambda    β_tran beta_tran    β_div beta_div    o merge_op    T kd_temperature
    I, I_g, I_d    server_iters × (gen_steps of Adam on w and the label embedding, distill_steps of SGD on θ)
    n_i^y      label_weighting: samples of class y drawn this round (dynamic), held (static), not counted (average)

Differs from the paper: distances in L_div are mean squares (the printed norms underflow to 0); the student is detached
in L_tran and the teacher in L_md; L_tran is averaged over the whole batch; optimisers live for the round; noise and
labels are drawn at every step, where the authors' sibling release draws once per alternation for both phases
(share_noise). Each has a switch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from search_spaces.parameter import choice, flag, real
from trainables.building_blocks import painting
from trainables.building_blocks.distillation_bases import (
    WITHOUT_SERVER_STEPS,
    ChannelRule,
    ClientState,
    DistillationBase,
    LabelCounting,
    base_job,
    check,
    initial_generator,
    label_distribution_of,
    preliminary,
)
from trainables.building_blocks.losses import diversity, kd_kl, kl_rows
from trainables.building_blocks.server_distillation import (
    Batch,
    Phases,
    ServerDistillation,
    generator_module,
    moving_average,
)
from trainables.building_blocks.submodels import extract
from trainables.building_blocks.teachers import Teachers
from trainables.federation import ClientData, Federation
from trainables.local import LocalJob
from trainables.method import Limit, Method, Painter
from trainables.methods import feddropout, fedrolex, heterofl
from trainables.params import on, pack, put, take, unpack
from trainables.rng import Rng
from trainables.wire import Params, Payload, Upload

#: The channels that a client trains under each base. With fedavg every client has full width and trains all of them.
CHANNELS: dict[str, ChannelRule] = {
    "fedavg": heterofl.channels,
    "heterofl": heterofl.channels,
    "feddropout": feddropout.channels,
    "fedrolex": fedrolex.channels,
    "none": heterofl.channels,
}


@dataclass(frozen=True)
class Config(ServerDistillation, LabelCounting, DistillationBase):
    """DFRD's own weights and switches, on top of its base and of server-side distillation."""

    alpha: float = real(
        0.5,
        low=0.0,
        high=2.0,
        symbol="α",
        doc="Weight of distillation on the averaged generator's images.",
        source="DFRD Eq. 7",
        tune=True,
    )
    lambda_: float = real(
        0.5,
        low=0.0,
        high=0.99,
        symbol="λ",
        doc="Momentum of the generator's moving average.",
        source="DFRD Eq. 6",
        tune=True,
    )
    beta_tran: float = real(
        1.0,
        low=0.0,
        high=2.0,
        symbol="β_tran",
        doc="Weight of the transferability loss.",
        source="DFRD Eq. 5",
        tune=True,
    )
    beta_div: float = real(
        1.0, low=0.0, high=2.0, symbol="β_div", doc="Weight of the diversity loss.", source="DFRD Eq. 5", tune=True
    )
    beta_ey: float = real(
        0.0,
        low=0.0,
        high=1.0,
        symbol="β_ey",
        doc="Weight of a hinge on the label embedding's norm.",
        source="DFRD code",
    )
    embed_norm_scale: float = real(
        1.0, low=0.0, high=100.0, symbol="γ", doc="The hinge starts at γ√d.", source="DFRD code"
    )
    use_ema: bool = flag(True, doc="Also distil on the averaged generator's images.", source="DFRD Table 5", tune=True)
    transferability: str = choice(
        "targeted",
        ("all", "disagree", "targeted"),
        symbol="ε",
        doc="Which samples count in L_tran.",
        source="DFRD Table 3",
        tune=True,
    )
    tran_grad: str = choice(
        "ensemble",
        ("ensemble", "both"),
        doc="L_tran's gradient runs through the ensemble only, or the student too.",
        source="DFDG code",
    )
    tran_norm: str = choice(
        "batch",
        ("batch", "selected"),
        doc="L_tran is divided by the batch, or by the samples with ε = 1.",
        source="DFDG code",
    )
    ema_update: str = choice(
        "round_end", ("round_end", "before_distillation"), doc="When Eq. 6 runs, once per round.", source="DFRD Eq. 6"
    )

    @property
    def sources(self) -> int:
        """G and, where its term of Eq. 7 has a weight, its moving average."""
        return 2 if self.use_ema and self.alpha > 0 else 1


@dataclass(frozen=True)
class State:
    """Global model θ, generator w (label embedding included) and its moving average w̃ after `round` rounds."""

    round: int
    model: Params
    generator: Params
    ema: Params


def init(config: Config, fed: Federation, rng: Rng) -> State:
    """Draws the model (the base's own initial model) and the generator; w̃ = w."""
    generator = initial_generator(config, fed)
    return State(0, fed.initial_params(), generator, generator)


def download(config: Config, fed: Federation, state: State, client: int) -> Payload:
    """The client's sub-model of the base, θ[K_i,t]; in data-free mode a model in the first round and nothing after."""
    if config.base == "none" and state.round > 0:
        return {}
    return pack("model", extract(fed, state.model, CHANNELS[config.base](fed, state.round + 1, client)))


def job(
    config: Config, fed: Federation, payload: Payload, client_state: ClientState | None, data: ClientData, rng: Rng
) -> LocalJob:
    """Trains the received sub-model, in data-free mode the client's own; uploads it and the label counts n_i^y
    `(C,)`."""
    return base_job(config, fed, unpack("model", payload), client_state, data, counting=config)


def server(config: Config, fed: Federation, state: State, uploads: Sequence[Upload], rng: Rng) -> State:
    """Aggregates with the base, then alternates generator and distillation phases."""
    now = state.round + 1
    model = preliminary(config, fed, state, uploads, CHANNELS[config.base])
    if config.server_iters == 0:
        return State(now, model, state.generator, moving_average(state.ema, state.generator, config.lambda_))
    teachers = Teachers(fed, uploads, scaler=config.scaler)
    labels = label_distribution_of(fed, uploads)
    tau = labels.weights.to(fed.device)
    phases = Phases(config, fed, fed.network(role="student"), model, state.generator, labels.probabilities, rng)
    averaged = generator_module(config, fed, "averaged G").eval()
    put(averaged, on(fed.device, state.ema))
    for_ema = phases.draws("ema")

    def of_generator(batch: Batch) -> Tensor:
        ensemble = teachers.logits(batch.seen, tau[:, batch.y])
        with torch.set_grad_enabled(config.tran_grad == "both"):
            student = phases.student(batch.seen)
        loss = generator_loss(config, ensemble, student, batch.y, batch.images, batch.merged)
        embedding = phases.generator.embedding
        if config.beta_ey > 0 and embedding is not None:
            loss = loss + config.beta_ey * embedding_hinge(embedding(batch.y), config.embed_norm_scale)
        return loss

    def logits(batch: Batch) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            ensemble = teachers.logits(batch.seen, tau[:, batch.y])
        return phases.student(batch.seen), ensemble

    def of_student(batch: Batch, *for_averaged: Tensor) -> Tensor:
        # The averaged generator's images are made of z̃ and ỹ, where its term has a weight.
        own = logits(batch)
        if not for_averaged:
            return student_loss(config, *own)
        with torch.no_grad():
            batch = phases.synthesise(averaged, *for_averaged)
        return student_loss(config, *own, logits(batch))

    ema, also = state.ema, [for_ema] if config.sources > 1 else []
    for iteration in range(config.server_iters):
        phases.generator_phase(of_generator)
        if iteration == 0 and config.ema_update == "before_distillation":
            ema = moving_average(ema, take(phases.generator), config.lambda_)
            put(averaged, ema)
        for_ema.renew()
        phases.distillation_phase(of_student, also)
    generator = take(phases.generator)
    if config.ema_update == "round_end":
        ema = moving_average(ema, generator, config.lambda_)
    return State(now, take(phases.student), generator, ema)


def transfer_mask(rule: str, ensemble: Tensor, student: Tensor, y: Tensor) -> Tensor:
    """ε `(B,)` from the ensemble's and the student's logits `(B, C)` and the labels `(B,)`; Table 3."""
    if rule == "all":
        return torch.ones_like(y, dtype=ensemble.dtype)
    theirs, ours = ensemble.argmax(dim=1), student.argmax(dim=1)
    chosen = ours != theirs if rule == "disagree" else (theirs == y) & (ours != y)
    return chosen.to(ensemble.dtype)


def transferability_loss(config: Config, ensemble: Tensor, student: Tensor, y: Tensor) -> Tensor:
    """Eq. (3): `-Σ_b ε_b KL(softmax_T(u_S) ‖ softmax_T(u_T))_b`, divided by B or by the number of selected samples (at
    least 1)."""
    mask = transfer_mask(config.transferability, ensemble.detach(), student.detach(), y)
    rows = kl_rows(student if config.tran_grad == "both" else student.detach(), ensemble, config.kd_temperature)
    count = mask.sum().clamp(min=1) if config.tran_norm == "selected" else float(len(y))
    return -(mask * rows).sum() / count


def generator_loss(
    config: Config, ensemble: Tensor, student: Tensor, y: Tensor, images: Tensor, merged: Tensor
) -> Tensor:
    """Eq. (5). `ensemble`, `student` `(B, C)` logits, `images` `(B, ch, H, W)`, `merged` h `(B, d')`."""
    loss = F.cross_entropy(ensemble, y)
    if config.beta_tran > 0:
        loss = loss + config.beta_tran * transferability_loss(config, ensemble, student, y)
    if config.beta_div > 0:
        loss = loss + config.beta_div * diversity(images, merged, config.diversity_norm)
    return loss


def student_loss(
    config: Config, student: Tensor, ensemble: Tensor, averaged: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    """L_md, Eq. (7). `student`, `ensemble` `(B, C)` logits on the generator's images; `averaged`: the same two on those
    of its moving average."""
    loss = kd_kl(student, ensemble, config.kd_temperature, config.kl_direction)
    if averaged is not None:
        loss = loss + config.alpha * kd_kl(*averaged, config.kd_temperature, config.kl_direction)
    return loss


def embedding_hinge(embedded: Tensor, scale: float) -> Tensor:
    """`mean_b max(0, ‖E(y_b)‖₂ - γ√d)` over embedded labels `(B, d)`; keeps L_div from being met by a growing
    embedding."""
    norms: Tensor = embedded.norm(dim=1)
    bound: float = scale * embedded.shape[1] ** 0.5
    return (norms - bound).clamp(min=0).mean()


def painters(config: Config, fed: Federation, state: State, clients: Mapping[int, ClientState]) -> dict[str, Painter]:
    """G and, where it is used, its moving average."""
    generators = {"generator": state.generator} | ({"ema": state.ema} if config.use_ema else {})
    return painting.painters(config, fed, generators, fed.network(role="judge"), state.model)


METHOD = Method(
    name="dfrd",
    title="DFRD",
    reference="Luo et al., NeurIPS 2023",
    family="server-side data-free distillation",
    Config=Config,
    State=State,
    ClientState=ClientState,
    init=init,
    download=download,
    job=job,
    server=server,
    recordable_server=True,
    widths="any",
    shares_label_counts=True,
    limits=(
        *WITHOUT_SERVER_STEPS,
        Limit({"alpha": 0, "base": "fedavg"}, equals="dfrd", other={"use_ema": False, "base": "fedavg"}),
    ),
    check=check,
    painters=painters,
    images=True,
)
