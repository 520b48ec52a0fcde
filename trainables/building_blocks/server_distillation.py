"""Server-side data-free distillation: what DFRD, FedFTG, DENSE and DHF share.

A conditional generator makes images `s = G(o(z, y))`; the round's local models, frozen, teach on them. Here are the
declared settings, the label distribution and class weights from clients' label counts, the draws and the two
alternating phases. What the generator and the student minimise is each method's own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from search_spaces.parameter import choice, flag, integer, real
from trainables.building_blocks.parameter_kinds import adam_lr, sgd_lr, temperature
from trainables.federation import Federation
from trainables.generators import MERGE_OPS, Generator
from trainables.kernels.optimisers import SGD, Adam
from trainables.kernels.recorded_steps import memory, recorded
from trainables.params import on, put
from trainables.rng import Rng
from trainables.wire import Params


@dataclass(frozen=True)
class ServerDistillation:
    """Lengths, optimisers and conditioning of server-side distillation."""

    server_iters: int = integer(
        10,
        low=0,
        high=1000,
        symbol="I",
        doc="Alternations of generator and distillation phase per round.",
        source="DFRD code",
        tune=(1, 50),
        work="alternations",
    )
    gen_steps: int = integer(
        2,
        low=0,
        high=1000,
        symbol="I_g",
        doc="Generator steps per alternation.",
        source="DFRD code",
        tune=(1, 20),
        work="steps",
    )
    distill_steps: int = integer(
        5,
        low=0,
        high=1000,
        symbol="I_d",
        doc="Distillation steps per alternation.",
        source="DFRD code",
        tune=(1, 20),
        work="steps",
    )
    gen_lr: float = adam_lr(2e-4, symbol="η_g", doc="Adam learning rate of the generator.", source="DFRD code")
    gen_beta1: float = real(
        0.5, low=0.0, high=0.999, symbol="b₁", doc="Adam's first-moment decay for the generator.", source="DFRD code"
    )
    gen_beta2: float = real(
        0.999,
        low=0.0,
        high=0.99999,
        symbol="b₂",
        doc="Adam's second-moment decay for the generator.",
        source="DFRD code",
    )
    distill_lr: float = sgd_lr(
        0.01, symbol="η_d", doc="SGD learning rate of the global model on the server.", source="DFRD code"
    )
    distill_momentum: float = real(0.0, low=0.0, high=0.999, doc="Momentum of that SGD.", source="DFRD code")
    distill_weight_decay: float = real(1e-4, low=0.0, high=0.1, doc="Weight decay of that SGD.", source="DFRD code")
    kd_temperature: float = temperature(
        10.0, symbol="T_kd", doc="Temperature of both softmaxes in every KL term.", source="DFRD code", tune=(1.0, 20.0)
    )
    noise_dim: int = integer(
        64, low=1, high=4096, symbol="d", doc="Width of the generator's noise.", source="DFRD Sec. 4.1"
    )
    server_batch_size: int = integer(
        64, low=2, high=4096, symbol="B", doc="Synthetic images per server step.", source="DFRD code", work="samples"
    )
    merge_op: str = choice(
        "mul", MERGE_OPS, symbol="o", doc="How noise and label embedding are merged.", source="DFRD Table 4", tune=True
    )
    diversity_norm: str = choice(
        "mean_sq",
        ("mean_sq", "mean_abs", "mean_abs_images", "l2"),
        doc="Distance inside the diversity loss, between images and between their noise alike; mean_abs_images: "
        "absolute between images, squared between noise, as FedFTG's code has it.",
        source="DFRD code; FedFTG code; DFRD Eq. 4",
    )
    kl_direction: str = choice(
        "teacher_first",
        ("teacher_first", "literal"),
        doc="Position of the teacher in the distillation KL.",
        source="DFRD code",
    )
    renormalise_synthetic: bool = flag(
        False, doc="Map images from [-1, 1] to the data set's normalisation before any model sees them."
    )
    resample_noise: bool = flag(
        True, doc="Draw new noise and labels at every step; else once per alternation and phase.", source="DFRD code"
    )
    share_noise: bool = flag(
        False,
        doc="One draw of noise and labels serves both phases of an alternation; nothing is then drawn anew at a step, "
        "whatever resample_noise says.",
        source="DFDG code",
    )
    reset_optim_each_phase: bool = flag(
        False, doc="Rebuild the optimisers at every phase, as the releases do.", source="DFRD code"
    )

    def server_passes(self, teachers: float) -> float:
        """What the models on the server cost in a round, in forward passes of the whole model with one image; what a
        backward pass computes for weights or for what comes before them is one more. The generator is left out.

        teachers: of how many whole models the clients' models have the size. A generator step is an answer of every
        teacher with its gradient to the images and one of the student, a distillation step an answer of every teacher
        and a step of the student."""
        generator, distillation = 2 * teachers + 1, teachers + 3
        return (
            self.server_iters
            * self.server_batch_size
            * (self.gen_steps * generator + self.distill_steps * self.sources * distillation)
        )

    @property
    def sources(self) -> int:
        """On the images of how many generators a distillation step distils."""
        return 1


@dataclass(frozen=True)
class LabelDistribution:
    """`weights` (S, C): τ_{i,y} of the round's clients, columns sum to 1. `probabilities` (C,): p(y), sums to 1."""

    weights: Tensor
    probabilities: Tensor


def label_distribution(counts: Tensor | None, clients: int, classes: int) -> LabelDistribution:
    """`τ_{i,y} = n_i^y / Σ_j n_j^y` and `p(y) = Σ_j n_j^y / Σ_y Σ_j n_j^y` from counts `(S, C)`; without counts all are
    equal.

    A class that nobody counted is never drawn (p = 0); its weights are set equal only to avoid 0/0."""
    if counts is None or not bool(counts.sum() > 0):
        return LabelDistribution(torch.full((clients, classes), 1.0 / clients), torch.full((classes,), 1.0 / classes))
    counts = counts.double()
    total = counts.sum(dim=0)
    weights = torch.where(total > 0, counts / total, 1.0 / clients)
    return LabelDistribution(weights.float(), (total / total.sum()).float())


@dataclass
class Draws:
    """Noise and labels from one named stream: `z ~ N(0, I)` `(B, d)`, `y ~ p(y)` `(B,)`."""

    batch: int
    noise_dim: int
    probabilities: Tensor
    device: torch.device
    rng: Rng
    resample: bool
    _generator: torch.Generator = field(init=False)
    _held: tuple[Tensor, Tensor] | None = None

    def __post_init__(self) -> None:
        self._generator = self.rng.torch("noise")

    def next(self) -> tuple[Tensor, Tensor]:
        """The next pair; the same one until `renew` where noise is not resampled."""
        if self._held is None or self.resample:
            z = torch.randn(self.batch, self.noise_dim, generator=self._generator)
            y = torch.multinomial(self.probabilities, self.batch, replacement=True, generator=self._generator)
            self._held = z.to(self.device), y.to(self.device)
        return self._held

    def renew(self) -> None:
        """Forgets the held pair."""
        self._held = None


def generator_module(config: ServerDistillation, fed: Federation, role: str) -> Generator:
    """The federation's generator module named `role`; its weights are to be loaded with `params.put`."""
    return fed.cached(
        ("generator", role, config.noise_dim, config.merge_op),
        lambda: Generator(fed.shape, fed.classes, config.noise_dim, config.merge_op),
    )


def to_models(config: ServerDistillation, fed: Federation, images: Tensor) -> Tensor:
    """Generated images in [-1, 1] as models see them: as they are, or mapped to the data set's normalisation. Of data
    that are taken as they are (`Federation.offset`) always mapped, to the range of the data."""
    if not config.renormalise_synthetic and fed.offset == 0:
        return images
    mean, std = (_by_channel(v, images.device, torch.get_default_dtype()) for v in (fed.mean, fed.std))
    return ((images + 1) / 2 - mean) / std


@functools.lru_cache(maxsize=16)
def _by_channel(values: tuple[float, ...], device: torch.device, kind: torch.dtype) -> Tensor:
    """A value for each channel, `(ch, 1, 1)`; kept, as a recorded step may bring nothing to the device."""
    return torch.tensor(values, device=device, dtype=kind)[:, None, None]


def moving_average(old: Params, new: Params, momentum: float) -> Params:
    """`w̃ ← λ w̃ + (1 - λ) w` over all floating-point state; integer buffers are copied (DFRD Eq. 6)."""
    return {
        name: momentum * old[name] + (1 - momentum) * tensor if tensor.is_floating_point() else tensor
        for name, tensor in new.items()
    }


@dataclass(frozen=True)
class Batch:
    """One generated batch: noise `z` `(B, d)`, labels `y` `(B,)`, `merged` h `(B, d')`, `images` in [-1, 1] `(B, ch, H,
    W)`, and `seen`, the images as models see them (`to_models`)."""

    z: Tensor
    y: Tensor
    merged: Tensor
    images: Tensor
    seen: Tensor


class Phases:
    """The server's working modules during one round and its two alternating phases.

    student: the global model, updated in place; read it with `params.take`.
    generator: G with its label embedding, likewise.
    A phase is given its loss as a function of a batch. Where the federation records steps, a loss is recorded once and
    must be a function of its arguments and of tensors that stay where they are."""

    def __init__(
        self,
        config: ServerDistillation,
        fed: Federation,
        student: nn.Module,
        model: Params,
        generator: Params,
        probabilities: Tensor,
        rng: Rng,
    ) -> None:
        """`student` is the global model's module and `model` its weights, `generator` the generator's, `probabilities`
        p(y) `(C,)`."""
        self.config, self.fed, self.probabilities, self.rng = config, fed, probabilities, rng
        self.student = student
        self.generator = generator_module(config, fed, "G")
        put(self.student, model)
        put(self.generator, on(fed.device, generator))
        # A stream for each use of the generator, so that the draws of the other terms stay the same when one is left
        # out.
        self._for_generator = self.draws("generator")
        self._for_student = self._for_generator if config.share_noise else self.draws("distillation")
        self._new_optimisers()
        self._steps: dict[object, Callable[..., None]] = {}

    def draws(self, name: str) -> Draws:
        """Noise and labels of the stream `name`."""
        c = self.config
        return Draws(
            c.server_batch_size,
            c.noise_dim,
            self.probabilities,
            self.fed.device,
            self.rng.child(name),
            c.resample_noise and not c.share_noise,
        )

    def synthesise(self, generator: Generator, z: Tensor, y: Tensor) -> Batch:
        """The images of `generator` for noise `(B, d)` and labels `(B,)`."""
        merged = generator.merge(z, y)
        images = generator(merged)
        return Batch(z, y, merged, images, to_models(self.config, self.fed, images))

    def generator_phase(self, loss_of: Callable[[Batch], Tensor]) -> None:
        """I_g Adam steps on the generator in training mode; the student frozen and in evaluation mode."""
        self._for_generator.renew()
        self._begin()
        self.student.eval().requires_grad_(False)
        self.generator.train()

        def step(z: Tensor, y: Tensor) -> None:
            loss = loss_of(self.synthesise(self.generator, z, y))
            self.adam.zero_grad(set_to_none=True)
            loss.backward()
            self.adam.step()

        taken = self._taken(("generator", loss_of), step, self.config.gen_steps)
        for _ in range(self.config.gen_steps):
            taken(*self._for_generator.next())

    def distillation_phase(self, loss_of: Callable[..., Tensor], also: Sequence[Draws] = ()) -> None:
        """I_d SGD steps on the student in training mode; the generator in evaluation mode, its images without
        gradient. After the batch the loss is given the noise and labels of each of `also`."""
        if not self.config.share_noise:
            self._for_student.renew()
        self._begin()
        self.student.train().requires_grad_(True)
        self.generator.eval()

        def step(z: Tensor, y: Tensor, *more: Tensor) -> None:
            with torch.no_grad():
                batch = self.synthesise(self.generator, z, y)
            loss = loss_of(batch, *more)
            self.sgd.zero_grad(set_to_none=True)
            loss.backward()
            self.sgd.step()

        taken = self._taken(("distillation", loss_of), step, self.config.distill_steps)
        for _ in range(self.config.distill_steps):
            taken(*(tensor for draws in (self._for_student, *also) for tensor in draws.next()))

    def _taken(self, key: object, step: Callable[..., None], times: int) -> Callable[..., None]:
        """The step of a phase as it is taken, so many `times` in each; that of an earlier phase of equal `key`, as it
        may have been recorded."""
        if key not in self._steps:
            every = times * self.config.server_iters
            self._steps[key] = recorded(step, self._changed, self.fed.record, every)
        return self._steps[key]

    def _changed(self) -> list[Tensor]:
        modules = (self.student, self.generator)
        return [*(t for module in modules for t in module.state_dict().values()), *memory(self.adam, self.sgd)]

    def _begin(self) -> None:
        if not self.config.reset_optim_each_phase:
            return
        if self.fed.record is None:
            self._new_optimisers()
        else:
            for tensor in memory(self.adam, self.sgd):
                tensor.zero_()  # in its place: it stands in recorded steps

    def _new_optimisers(self) -> None:
        c = self.config
        self.adam = Adam(
            self.generator.parameters(),
            lr=c.gen_lr,
            betas=(c.gen_beta1, c.gen_beta2),
            fused=True,
            capturable=self.fed.record is not None,
        )
        self.sgd = SGD(
            self.student.parameters(),
            lr=c.distill_lr,
            momentum=c.distill_momentum,
            weight_decay=c.distill_weight_decay,
            fused=True,
        )
