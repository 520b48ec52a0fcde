"""Server-side data-free distillation: what DFRD, FedFTG and DENSE share.

A conditional generator makes images `s = G(o(z, y))`; the round's local models, frozen, teach on them. Here are the
declared settings, the label law and class weights from clients' label counts, the frozen teachers and the draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from search_spaces.parameter import choice, flag, integer, real
from trainables.federation import Federation
from trainables.generators import MERGE_OPS, Generator
from trainables.method import Params, Upload
from trainables.params import put, unpack
from trainables.rng import Rng


@dataclass(frozen=True)
class ServerDistillation:
    """Lengths, optimisers and conditioning of server-side distillation."""

    server_iters: int = integer(10, low=0, high=1000, symbol="I", doc="Alternations of generator and distillation phase per round.",
                                source="DFRD code", tune=(1, 50))
    gen_steps: int = integer(2, low=0, high=1000, symbol="I_g", doc="Generator steps per alternation.", source="DFRD code", tune=(1, 20))
    distill_steps: int = integer(5, low=0, high=1000, symbol="I_d", doc="Distillation steps per alternation.", source="DFRD code", tune=(1, 20))
    gen_lr: float = real(2e-4, low=1e-7, high=1.0, log=True, symbol="η_g", doc="Adam learning rate of the generator.", source="DFRD code", tune=(1e-5, 1e-2))
    gen_beta1: float = real(0.5, low=0.0, high=0.999, symbol="b₁", doc="Adam's first-moment decay for the generator.", source="DFRD code")
    gen_beta2: float = real(0.999, low=0.0, high=0.99999, symbol="b₂", doc="Adam's second-moment decay for the generator.", source="DFRD code")
    distill_lr: float = real(0.01, low=1e-6, high=10.0, log=True, symbol="η_d", doc="SGD learning rate of the global model on the server.",
                             source="DFRD code", tune=(1e-4, 0.1))
    distill_momentum: float = real(0.0, low=0.0, high=0.999, doc="Momentum of that SGD.", source="DFRD code")
    distill_weight_decay: float = real(1e-4, low=0.0, high=0.1, doc="Weight decay of that SGD.", source="DFRD code")
    kd_temperature: float = real(10.0, low=0.1, high=100.0, log=True, symbol="T_kd", doc="Temperature of both softmaxes in every KL term.",
                                 source="DFRD code", tune=(1.0, 20.0))
    noise_dim: int = integer(64, low=1, high=4096, symbol="d", doc="Width of the generator's noise.", source="DFRD Sec. 4.1")
    server_batch_size: int = integer(64, low=2, high=4096, symbol="B", doc="Synthetic images per server step.", source="DFRD code")
    merge_op: str = choice("mul", MERGE_OPS, symbol="o", doc="How noise and label embedding are merged.", source="DFRD Table 4", tune=True)
    diversity_norm: str = choice("mean_sq", ("mean_sq", "mean_abs", "l2"), doc="Distance inside the diversity loss.", source="DFRD code")
    kl_direction: str = choice("teacher_first", ("teacher_first", "literal"), doc="Slot of the teacher in the distillation KL.", source="DFRD code")
    renormalise_synthetic: bool = flag(False, doc="Map images from [-1, 1] to the data set's normalisation before any model sees them.")
    resample_noise: bool = flag(True, doc="Draw noise and labels anew at every step; else once per alternation and phase.", source="DFRD code")
    reset_optim_each_phase: bool = flag(False, doc="Rebuild the optimisers at every phase, as the releases do.", source="DFRD code")


@dataclass(frozen=True)
class LabelLaw:
    """`weights` (S, C): τ_{i,y} of the round's clients, columns sum to 1. `law` (C,): p(y), sums to 1."""

    weights: Tensor
    law: Tensor


def label_law(counts: Tensor | None, clients: int, classes: int) -> LabelLaw:
    """`τ_{i,y} = n_i^y / Σ_j n_j^y` and `p(y) = Σ_j n_j^y / Σ_y Σ_j n_j^y` from counts `(S, C)`; without counts all are equal.

    A class that nobody counted is never drawn (p = 0); its weights are set equal only to avoid 0/0."""
    if counts is None or not bool(counts.sum() > 0):
        return LabelLaw(torch.full((clients, classes), 1.0 / clients), torch.full((classes,), 1.0 / classes))
    counts = counts.double()
    total = counts.sum(dim=0)
    weights = torch.where(total > 0, counts / total.clamp(min=1e-300), 1.0 / clients)
    return LabelLaw(weights.float(), (total / total.sum()).float())


class Teachers:
    """The round's local models, frozen, in evaluation mode."""

    def __init__(self, fed: Federation, uploads: Sequence[Upload]) -> None:
        self.modules: list[nn.Module] = []
        for place, upload in enumerate(uploads):
            module = fed.network(fed.widths[upload.client], slot=f"teacher {place}")
            put(module, unpack("model", upload.payload))
            self.modules.append(module.eval().requires_grad_(False))

    def logits(self, images: Tensor, weights: Tensor) -> Tensor:
        """The ensemble `u_T = Σ_i τ_i f_i(s)`: images `(B, ...)`, weights `(S, B)` to `(B, C)`. Differentiable in the images."""
        total: Tensor | None = None
        for module, weight in zip(self.modules, weights, strict=True):
            term = weight[:, None] * module(images)
            total = term if total is None else total + term
        assert total is not None
        return total


@dataclass
class Draws:
    """Noise and labels from one named stream: `z ~ N(0, I)` `(B, d)`, `y ~ p(y)` `(B,)`."""

    batch: int
    noise_dim: int
    law: Tensor
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
            y = torch.multinomial(self.law, self.batch, replacement=True, generator=self._generator)
            self._held = z.to(self.device), y.to(self.device)
        return self._held

    def renew(self) -> None:
        """Forgets the held pair."""
        self._held = None


def generator_module(config: ServerDistillation, fed: Federation, slot: str) -> Generator:
    """The federation's generator module named `slot`; its weights are to be loaded with `params.put`."""
    return fed.cached(("generator", slot, config.noise_dim, config.merge_op),
                      lambda: Generator(fed.shape, fed.classes, config.noise_dim, config.merge_op))


def to_models(config: ServerDistillation, fed: Federation, images: Tensor) -> Tensor:
    """Generated images in [-1, 1] as models see them: as they are, or mapped to the data set's normalisation."""
    if not config.renormalise_synthetic:
        return images
    mean, std = (torch.tensor(v, device=images.device)[:, None, None] for v in (fed.mean, fed.std))
    return ((images + 1) / 2 - mean) / std


def moving_average(old: Params, new: Params, momentum: float) -> Params:
    """`w̃ ← λ w̃ + (1 - λ) w` over all floating-point state; integer buffers are copied (DFRD Eq. 6)."""
    return {name: momentum * old[name] + (1 - momentum) * tensor if tensor.is_floating_point() else tensor for name, tensor in new.items()}
