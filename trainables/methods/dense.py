"""DENSE: data-free one-shot federated learning, here in every round.

Zhang, Chen, Li, Lyu, Wu, Ding, Shen, Wu: DENSE: Data-Free One-Shot Federated Learning, NeurIPS 2022; as a companion of
a base, and data-free, in the tables of DFRD (NeurIPS 2023) and DHF.

A generator on the server makes images that the plain average of the clients' logits recognises, that have the batch
statistics of the clients' data, and on which the global model disagrees; the global model is distilled on them.

    base      θ ← preliminary global model of fedavg | heterofl | feddropout | fedrolex; none: not aggregated
    u_T       1/N Σ_i f_i(s),   s = G(o(z, y); w),   z ~ N(0, I),  y uniform over the classes;    u_S = f(s; θ)
    L_bn      1/N Σ_i Σ_l ( ‖μ_l(s; f_i) - μ_(i,l)‖₂ + ‖σ²_l(s; f_i) - σ²_(i,l)‖₂ )
    L_adv     dense: -mean_b 1[argmax u_S ≠ argmax u_T] KL(softmax(u_T/T) ‖ softmax(u_S/T))
              dfdg:  -mean over the b of which one of u_S, u_T is right, of KL(softmax(u_S/T) ‖ softmax(u_T/T))
    L_gen     CE(u_T, y) + β_bn L_bn + β_adv L_adv                                   I_g steps of Adam on w
    L_dis     KL(softmax(u_T/T) ‖ softmax(u_S/T))                                    I_d steps of SGD on θ
    μ_(i,l), σ²_(i,l)   of what enters normalisation layer l on client i's data, per channel; followed while it trains
                        with momentum bn_momentum and uploaded where β_bn > 0

    β_bn beta_bn    β_adv beta_adv    o merge_op    T kd_temperature
    I, I_g, I_d    server_iters, gen_steps, distill_steps    L_adv adversarial

Differs from the paper, following its re-implementations by DFRD's authors: it runs in every round; models may keep no
running statistics, hence the upload of what enters the layers; the generator is conditional (merge_op=none: is not) and
lives on, and noise is drawn anew instead of being optimised and the best batch stored in a pool (share_noise: once per
alternation); images are not augmented; KL terms have no factor T² (squared_temperature). L_adv alone is not theirs but
DENSE's own, of its paper and code, whose gradient runs through both sides; theirs is adversarial=dfdg, with u_S
detached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial as bind
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from search_spaces.errors import sentence
from search_spaces.parameter import choice, flag, real
from trainables import models
from trainables.building_blocks import distillation_bases, painting, partial_training
from trainables.building_blocks.distillation_bases import (
    WITHOUT_SERVER_STEPS,
    ClientState,
    DistillationBase,
    State,
    base_job,
    init,
    preliminary,
)
from trainables.building_blocks.losses import kd_kl, kl_rows
from trainables.building_blocks.server_distillation import (
    Batch,
    Phases,
    ServerDistillation,
    label_distribution,
)
from trainables.building_blocks.teachers import Teachers
from trainables.federation import ClientData, Federation, FederationConfig
from trainables.local import LocalJob, client_of
from trainables.method import Method
from trainables.methods.dfrd import CHANNELS, download
from trainables.models.base import Model
from trainables.models.layers import BatchNorm
from trainables.params import pack, take, unpack
from trainables.rng import Rng
from trainables.wire import ClientResult, Params, Payload, Upload

#: `(layer, mean (C,), var (C,))` of what enters a normalisation layer: per channel, over the batch and all positions.
Watcher = Callable[[str, Tensor, Tensor], None]


@dataclass(frozen=True)
class Config(ServerDistillation, DistillationBase):
    """DENSE's weights and switches, on top of its base and of server-side distillation."""

    beta_bn: float = real(
        1.0,
        low=0.0,
        high=100.0,
        log=True,
        symbol="β_bn",
        doc="Weight of the batch statistics loss.",
        source="DENSE",
        tune=(0.01, 10),
    )
    beta_adv: float = real(
        1.0,
        low=0.0,
        high=100.0,
        log=True,
        symbol="β_adv",
        doc="Weight of the adversarial loss.",
        source="DENSE",
        tune=(0.01, 10),
    )
    adversarial: str = choice(
        "dense",
        ("dense", "dfdg"),
        symbol="L_adv",
        doc="The adversarial loss: DENSE's own, or its re-implementation's, which swaps the sides of the KL, detaches "
        "the student and counts samples that exactly one of student and ensemble classifies rightly.",
        source="DENSE code; DFDG code",
    )
    bn_momentum: float = real(
        0.5, low=0.0, high=0.999, doc="Share of the old batch statistics kept at every local step.", source="DFRD code"
    )
    bn_norm: str = choice(
        "sum", ("sum", "mean"), doc="L_bn adds a model's layers up, or averages them.", source="DENSE code; DFDG code"
    )
    squared_temperature: bool = flag(False, doc="Multiply KL terms by T².", source="DENSE code")


def check(config: Config, federation: FederationConfig) -> list[str]:
    """L_bn needs normalisation layers; fedavg as a base needs clients of equal width."""
    problems = distillation_bases.check(config, federation)
    if config.beta_bn > 0 and federation.model != "auto" and not models.has_batch_norm(federation.model):
        problems.append(
            sentence(
                "beta_bn",
                f"0 for model {federation.model}, which has no batch normalisation",
                config.beta_bn,
                fix="Use --set beta_bn=0.",
            )
        )
    return problems


def without_statistics(config: Config) -> bool:
    """Whether clients do no more than the base's; statistics are followed from step to step by hooks in a client's own
    module."""
    return config.beta_bn == 0


def job(
    config: Config, fed: Federation, payload: Payload, client_state: ClientState | None, data: ClientData, rng: Rng
) -> LocalJob:
    """Trains the received sub-model, in data-free mode the client's own, and uploads it."""
    return base_job(config, fed, unpack("model", payload), client_state, data)


def client(
    config: Config, fed: Federation, payload: Payload, client_state: ClientState | None, data: ClientData, rng: Rng
) -> ClientResult:
    """Does the job; for L_bn it also follows the statistics of the client's data during training and uploads them."""
    train = client_of(job)
    if without_statistics(config):
        return train(config, fed, payload, client_state, data, rng)
    with tracking(partial_training.client_module(config, fed, data.client), config.bn_momentum) as statistics:
        result = train(config, fed, payload, client_state, data, rng)
    return replace(result, upload=result.upload | pack("statistics", statistics))


def server(config: Config, fed: Federation, state: State, uploads: Sequence[Upload], rng: Rng) -> State:
    """Aggregates with the base, then alternates generator and distillation phases."""
    model = preliminary(config, fed, state, uploads, CHANNELS[config.base])
    if config.server_iters == 0:
        return State(state.round + 1, model, state.generator)
    teachers = Teachers(fed, uploads, scaler=config.scaler, apart=config.beta_bn > 0)
    labels = label_distribution(None, len(uploads), fed.classes)
    tau = labels.weights.to(fed.device)
    reported = [unpack("statistics", u.payload) for u in uploads]
    phases = Phases(config, fed, fed.network(role="student"), model, state.generator, labels.probabilities, rng)

    def of_generator(batch: Batch) -> Tensor:
        seen: list[Params] = [{} for _ in reported]
        with ExitStack() as stack:
            if config.beta_bn > 0:
                for module, here in zip(teachers.modules, seen, strict=True):
                    stack.enter_context(watching(module, bind(_note, here)))
            ensemble = teachers.logits(batch.seen, tau[:, batch.y])
        loss = generator_loss(config, ensemble, phases.student(batch.seen), batch.y)
        return loss + config.beta_bn * statistics_loss(config, seen, reported) if config.beta_bn > 0 else loss

    def of_student(batch: Batch) -> Tensor:
        with torch.no_grad():
            ensemble = teachers.logits(batch.seen, tau[:, batch.y])
        loss = kd_kl(phases.student(batch.seen), ensemble, config.kd_temperature, config.kl_direction)
        return loss * config.kd_temperature**2 if config.squared_temperature else loss

    for _ in range(config.server_iters):
        phases.generator_phase(of_generator)
        phases.distillation_phase(of_student)
    return State(state.round + 1, take(phases.student), take(phases.generator))


def _note(into: Params, name: str, mean: Tensor, var: Tensor) -> None:
    into[f"{name}.mean"], into[f"{name}.var"] = mean, var


def statistics_loss(config: Config, seen: Sequence[Params], reported: Sequence[Params]) -> Tensor:
    """L_bn. `seen` and `reported` hold `<layer>.mean` and `<layer>.var` `(C_l,)` of each client's model: on the
    generated batch, and on the client's data. Divided by the number of layers too where bn_norm is `mean`."""
    distances = []
    for ours, theirs in zip(seen, reported, strict=True):
        distance = torch.stack([(ours[name] - theirs[name]).norm() for name in theirs]).sum()
        distances.append(distance / (len(theirs) / 2) if config.bn_norm == "mean" else distance)
    return sum(distances[1:], start=distances[0]) / len(seen)


def adversarial_loss(config: Config, ensemble: Tensor, student: Tensor, y: Tensor) -> Tensor:
    """L_adv of two `(B, C)` logits and labels `(B,)`. `dense`: neither side is detached, the generator moves through
    both. `dfdg`: the student is detached, and the mean is over the samples that count (0 where none does)."""
    theirs, ours = ensemble.argmax(dim=1), student.argmax(dim=1)
    if config.adversarial == "dfdg":
        one_right = ((theirs == y) != (ours == y)).to(student.dtype)
        rows = kl_rows(student.detach(), ensemble, config.kd_temperature)
        loss = -(one_right * rows).sum() / one_right.sum().clamp(min=1)
    else:
        loss = -((ours != theirs).to(student.dtype) * kl_rows(ensemble, student, config.kd_temperature)).mean()
    return loss * config.kd_temperature**2 if config.squared_temperature else loss


def generator_loss(config: Config, ensemble: Tensor, student: Tensor, y: Tensor) -> Tensor:
    """L_gen without its term of batch statistics. `ensemble`, `student` `(B, C)`, labels `y` `(B,)`."""
    loss = F.cross_entropy(ensemble, y)
    return loss + config.beta_adv * adversarial_loss(config, ensemble, student, y) if config.beta_adv > 0 else loss


def normalisation_layers(module: nn.Module) -> list[str]:
    """Names of the normalisation layers, in the order of `modules()`."""
    return [name for name, part in module.named_modules() if isinstance(part, BatchNorm)]


@contextmanager
def watching(module: Model, watcher: Watcher) -> Iterator[None]:
    """Within, every forward pass tells `watcher` each layer's statistics; they carry the pass's gradient.

    They are those before the scaler, so that a client's statistics and those of its model in evaluation are in one
    unit. Variances are of the population (divided by the count)."""

    def look(name: str, part: nn.Module, inputs: tuple[Any, ...]) -> None:
        (x,) = inputs
        var, mean = torch.var_mean(x.float(), dim=(0, 2, 3), correction=0)
        watcher(name, mean, var)

    hooks = [
        module.get_submodule(name).register_forward_pre_hook(bind(look, name)) for name in normalisation_layers(module)
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def tracking(module: Model, momentum: float) -> Iterator[Params]:
    """Within, the yielded `<layer>.mean` and `<layer>.var` follow the batches: `s ← m s + (1 - m) batch`, from the
    first batch on."""
    tracked: Params = {}

    def follow(name: str, mean: Tensor, var: Tensor) -> None:
        for key, value in ((f"{name}.mean", mean.detach()), (f"{name}.var", var.detach())):
            tracked[key] = momentum * tracked[key] + (1 - momentum) * value if key in tracked else value

    with watching(module, follow):
        yield tracked


METHOD = Method(
    name="dense",
    title="DENSE",
    reference="Zhang et al., NeurIPS 2022",
    family="server-side data-free distillation",
    Config=Config,
    State=State,
    ClientState=ClientState,
    init=init,
    download=download,
    client=client,
    job=job,
    job_applies=without_statistics,
    server=server,
    recordable_server=True,
    widths="any",
    limits=WITHOUT_SERVER_STEPS,
    check=check,
    painters=painting.of_state,
    images=True,
)
