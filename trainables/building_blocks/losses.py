"""Losses shared by the methods: pure functions, one equation each.

Throughout: `B` batch, `C` classes, logits `(B, C)`; a teacher is always detached unless a function says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.kernels.distances import mean_squares


def kl_rows(target_logits: Tensor, logits: Tensor, temperature: float = 1.0) -> Tensor:
    """`KL(softmax_T(target) || softmax_T(logits))` per sample: two `(…, C)` to `(…)`. Neither side is detached."""
    log_target = F.log_softmax(target_logits / temperature, dim=-1)
    log_other = F.log_softmax(logits / temperature, dim=-1)
    return (log_target.exp() * (log_target - log_other)).sum(dim=-1)


def kd_kl(student: Tensor, teacher: Tensor, temperature: float = 1.0, direction: str = "teacher_first") -> Tensor:
    """Distillation with the teacher as target: mean over the batch of `KL(softmax_T(teacher) || softmax_T(student))`.

    `direction="literal"` swaps the two arguments (the papers write the student first). No `T²` factor. An empty batch
    gives 0, not NaN."""
    if student.shape[0] == 0:
        return student.sum() * 0.0
    teacher = teacher.detach()
    rows = (
        kl_rows(teacher, student, temperature)
        if direction == "teacher_first"
        else kl_rows(student, teacher, temperature)
    )
    return rows.mean()


def pair_distances(values: Tensor, norm: str = "mean_sq") -> Tensor:
    """Distances between all pairs of rows: `(B, ...)` to `(B, B)`, the diagonal 0.

    `mean_sq` is the mean squared difference over coordinates, `mean_abs` the mean absolute one, `l2` the Euclidean
    norm."""
    flat = values.flatten(1)
    if norm == "mean_abs":
        return torch.cdist(flat, flat, p=1) / flat.shape[1]
    if norm == "mean_sq":
        return mean_squares(flat)
    # Differences are formed explicitly: the shortcut |a|²+|b|²-2ab cancels, and cdist's own gradient at 0 is NaN.
    total = (flat[:, None] - flat[None]).square().sum(dim=2)
    apart = total > 0
    return torch.where(apart, torch.where(apart, total, 1.0).sqrt(), 0.0)


def diversity(outputs: Tensor, conditions: Tensor, norm: str = "mean_sq") -> Tensor:
    """`exp(-mean_{j,k} d(out_j, out_k) · d(cond_j, cond_k))` over all pairs of a batch, in (0, 1]; DFRD Eq. 4.

    `outputs` `(B, ...)`, `conditions` `(B, d)`. The papers' Euclidean norms (`l2`) underflow to 0 for images; the
    default averages over coordinates, as the authors' code does. A `norm` of `pair_distances` is that of outputs and of
    conditions; `mean_abs_images` is FedFTG's pair, `mean_abs` between outputs and `mean_sq` between conditions."""
    of_outputs, of_conditions = ("mean_abs", "mean_sq") if norm == "mean_abs_images" else (norm, norm)
    return torch.exp(-(pair_distances(outputs, of_outputs) * pair_distances(conditions, of_conditions)).mean())


def added(loss: Tensor, parameters: Sequence[Tensor], gradient: Sequence[Tensor]) -> Tensor:
    """`loss` (a scalar), to whose gradient in each of `parameters` the tensor of `gradient` at its place is added:
    `∂ added / ∂w = ∂L/∂w + a`.

    A linear term `⟨w, a⟩ - sg⟨w, a⟩` says the same, and costs two more passes over all weights in every step."""
    if len(parameters) != len(gradient):
        raise ValueError(f"{len(parameters)} parameters and {len(gradient)} gradients")
    value: Tensor = _Added.apply(loss, *parameters, *gradient)
    return value


class _Added(torch.autograd.Function):
    # What `vmap` does to it follows from what is written here.
    generate_vmap_rule = True

    @staticmethod
    def forward(loss: Tensor, *tensors: Tensor) -> Tensor:
        return loss.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[1 + len(inputs) // 2 :])

    @staticmethod
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor | None, ...]:
        gradient = ctx.saved_tensors
        return incoming, *(incoming * a for a in gradient), *(None for _ in gradient)
