"""FedFTG: fine-tuning the global model via data-free knowledge distillation.

Zhang, Shen, Ding, Tao, Duan: Fine-tuning Global Model via Data-free Knowledge Distillation for Non-IID Federated
Learning, CVPR 2022; as a companion of a base, and data-free, in the tables of DFRD (NeurIPS 2023).

A conditional generator on the server looks for hard samples: clients recognise them, each weighted by its share of the
label, and the global model answers them differently. The global model is then distilled from every client on them.

    base      θ ← preliminary global model of fedavg | heterofl | feddropout | fedrolex; none: not aggregated
    s         G(o(z, y); w),   z ~ N(0, I),  y ~ p(y)
    L_cls     Σ_i mean_b τ_(i,y) CE(f_i(s), y)
    L_md      Σ_i mean_b τ_(i,y) KL(softmax(f(s; θ)/T) ‖ softmax(f_i(s)/T)) / C
    L_div     exp(-mean_jk d(s_j, s_k) d(z_j, z_k))
    L_gen     L_cls - β_md L_md + β_div L_div                                        I_g steps of Adam on w
    L_glo     Σ_i mean_b τ_(i,y) KL(softmax(f_i(s)/T) ‖ softmax(f(s; θ)/T)) / C      I_d steps of SGD on θ
    τ, p      τ_(i,y) = n_i^y / Σ_j n_j^y,  p(y) = Σ_j n_j^y / Σ_y Σ_j n_j^y

    β_md beta_md    β_div beta_div    o merge_op    T kd_temperature
    I, I_g, I_d    server_iters, gen_steps, distill_steps
    n_i^y      label_weighting: samples of class y held (static), drawn this round (dynamic), not counted (average)
    C          the classes: kl_norm=classes averages over them too, kl_norm=batch leaves the division out

Its clients are DFRD's. Unlike DFRD, losses are taken per client and then weighted; logits are never averaged, and every
sample counts in L_md.

Differs from the paper, following its re-implementation by DFRD's authors: L_md is a KL whose gradient runs
through the clients, not the mean distance of logits whose gradient runs through the global model (discrepancy=l1); the
clients are visited together, not one after another with an Adam step each; distances in L_div are mean squares, not
absolute ones between images and squares between noise (diversity_norm=mean_abs_images; mean_abs makes both absolute);
noise and labels are drawn at every step, not once per alternation for both phases (share_noise); local training has no
learning rate decay and no gradient clipping.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from search_spaces.parameter import choice, other_default, real
from trainables.building_blocks import painting
from trainables.building_blocks.distillation_bases import (
    WITHOUT_SERVER_STEPS,
    ClientState,
    DistillationBase,
    LabelCounting,
    State,
    check,
    init,
    label_distribution_of,
    preliminary,
)
from trainables.building_blocks.losses import diversity, kl_rows
from trainables.building_blocks.server_distillation import Batch, Phases, ServerDistillation
from trainables.building_blocks.teachers import Teachers
from trainables.federation import Federation
from trainables.method import Method
from trainables.methods.dfrd import CHANNELS, download, job
from trainables.params import take
from trainables.rng import Rng
from trainables.wire import Upload


@dataclass(frozen=True)
class Config(ServerDistillation, LabelCounting, DistillationBase):
    """FedFTG's weights and switches, on top of its base and of server-side distillation."""

    beta_md: float = real(
        1.0,
        low=0.0,
        high=100.0,
        log=True,
        symbol="β_md",
        doc="Weight of the model discrepancy loss.",
        source="FedFTG",
        tune=(0.1, 10),
    )
    beta_div: float = real(
        1.0,
        low=0.0,
        high=100.0,
        log=True,
        symbol="β_div",
        doc="Weight of the diversity loss.",
        source="FedFTG",
        tune=(0.1, 10),
    )
    discrepancy: str = choice(
        "kl",
        ("kl", "l1"),
        doc="L_md: KL moving the generator through the clients, or the mean absolute "
        "difference of logits moving it through the global model.",
        source="DFRD code; FedFTG code",
    )
    kl_norm: str = choice(
        "classes",
        ("classes", "batch"),
        doc="KL terms are averaged over the batch and the classes, or over the batch alone, which makes them C times "
        "as large.",
        source="DFRD code",
    )
    label_weighting: str = other_default(LabelCounting, "label_weighting", "static", source="FedFTG")
    gen_steps: int = other_default(ServerDistillation, "gen_steps", 1, source="FedFTG code")
    merge_op: str = other_default(ServerDistillation, "merge_op", "cat", source="DFRD code")


def server(config: Config, fed: Federation, state: State, uploads: Sequence[Upload], rng: Rng) -> State:
    """Aggregates with the base, then alternates generator and distillation phases."""
    model = preliminary(config, fed, state, uploads, CHANNELS[config.base])
    if config.server_iters == 0:
        return State(state.round + 1, model, state.generator)
    teachers = Teachers(fed, uploads, scaler=config.scaler)
    labels = label_distribution_of(fed, uploads)
    tau = labels.weights.to(fed.device)
    phases = Phases(config, fed, fed.network(role="student"), model, state.generator, labels.probabilities, rng)

    def of_generator(batch: Batch) -> Tensor:
        with torch.set_grad_enabled(config.discrepancy == "l1"):
            student = phases.student(batch.seen)
        return generator_loss(
            config, teachers.each(batch.seen), student, batch.y, tau[:, batch.y], batch.images, batch.z
        )

    def of_student(batch: Batch) -> Tensor:
        with torch.no_grad():
            each = teachers.each(batch.seen)
        return global_loss(config, each, phases.student(batch.seen), tau[:, batch.y])

    for _ in range(config.server_iters):
        phases.generator_phase(of_generator)
        phases.distillation_phase(of_student)
    return State(state.round + 1, take(phases.student), take(phases.generator))


def weighted(rows: Tensor, weights: Tensor) -> Tensor:
    """`Σ_i mean_b τ_(i,y) rows_(i,b)` of two `(S, B)`."""
    return (weights * rows).sum() / rows.shape[1]


def kl_each(config: Config, target: Tensor, other: Tensor) -> Tensor:
    """`KL(softmax_T(target) ‖ softmax_T(other))` of `(S, B, C)` logits, sample by sample: `(S, B)`."""
    rows = kl_rows(target.flatten(0, 1), other.flatten(0, 1), config.kd_temperature).view(target.shape[:2])
    return rows / target.shape[2] if config.kl_norm == "classes" else rows


def discrepancy_loss(config: Config, each: Tensor, student: Tensor, weights: Tensor) -> Tensor:
    """L_md from the clients' logits `(S, B, C)`, the student's `(B, C)` and `τ_(i,y)` `(S, B)`; one of the two is
    detached."""
    if config.discrepancy == "l1":
        return weighted((student - each.detach()).abs().mean(dim=2), weights)
    return weighted(kl_each(config, student.detach().expand_as(each), each), weights)


def generator_loss(
    config: Config, each: Tensor, student: Tensor, y: Tensor, weights: Tensor, images: Tensor, noise: Tensor
) -> Tensor:
    """L_gen. `each` `(S, B, C)`, `student` `(B, C)`, labels `y` `(B,)`, `weights` `(S, B)`, `images` `(B, ch, H, W)`,
    `noise` `(B, d)`."""
    clients, batch, _ = each.shape
    rows = F.cross_entropy(each.flatten(0, 1), y.repeat(clients), reduction="none").view(clients, batch)
    loss = weighted(rows, weights)
    if config.beta_md > 0:
        loss = loss - config.beta_md * discrepancy_loss(config, each, student, weights)
    if config.beta_div > 0:
        loss = loss + config.beta_div * diversity(images, noise, config.diversity_norm)
    return loss


def global_loss(config: Config, each: Tensor, student: Tensor, weights: Tensor) -> Tensor:
    """L_glo; the clients are detached. `kl_direction=literal` swaps the two sides of the KL."""
    each, student = each.detach(), student.expand_as(each)
    rows = kl_each(config, each, student) if config.kl_direction == "teacher_first" else kl_each(config, student, each)
    return weighted(rows, weights)


METHOD = Method(
    name="fedftg",
    title="FedFTG",
    reference="Zhang et al., CVPR 2022",
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
    limits=WITHOUT_SERVER_STEPS,
    check=check,
    painters=painting.of_state,
    images=True,
)
