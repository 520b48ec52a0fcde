"""Losses shared by the methods: pure functions, one equation each.

Throughout: `B` batch, `C` classes, logits `(B, C)`; a teacher is always detached unless a function says otherwise.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

#: Numbers that stay in a core's cache from one operation to the next, and numbers a core sums up at once.
_CACHED, _VECTORS = 1 << 18, 64


def kl_rows(target_logits: Tensor, logits: Tensor, temperature: float = 1.0) -> Tensor:
    """`KL(softmax_T(target) || softmax_T(logits))` per sample: two `(B, C)` to `(B,)`. Neither side is detached."""
    log_target = F.log_softmax(target_logits / temperature, dim=1)
    log_other = F.log_softmax(logits / temperature, dim=1)
    return (log_target.exp() * (log_target - log_other)).sum(dim=1)


def kd_kl(student: Tensor, teacher: Tensor, temperature: float = 1.0, direction: str = "teacher_first") -> Tensor:
    """Distillation with the teacher as target: mean over the batch of `KL(softmax_T(teacher) || softmax_T(student))`.

    `direction="literal"` swaps the two slots (the papers write the student first). No `T²` factor. An empty batch
    gives 0, not NaN."""
    if student.shape[0] == 0:
        return student.sum() * 0.0
    teacher = teacher.detach()
    rows = kl_rows(teacher, student, temperature) if direction == "teacher_first" else kl_rows(student, teacher, temperature)
    return rows.mean()


def pair_distances(values: Tensor, norm: str = "mean_sq") -> Tensor:
    """Distances between all pairs of rows: `(B, ...)` to `(B, B)`, the diagonal 0.

    `mean_sq` is the mean squared difference over coordinates, `mean_abs` the mean absolute one, `l2` the Euclidean norm."""
    flat = values.flatten(1)
    if norm == "mean_abs":
        return torch.cdist(flat, flat, p=1) / flat.shape[1]
    # Differences are formed explicitly: the shortcut |a|²+|b|²-2ab cancels, and cdist's own gradient at 0 is NaN.
    if norm == "mean_sq":
        fits = flat.is_cuda or len(flat) * flat.numel() <= _CACHED
        return (flat[:, None] - flat[None]).square().mean(dim=2) if fits else _MeanSquares.apply(flat)
    total = (flat[:, None] - flat[None]).square().sum(dim=2)
    apart = total > 0
    return torch.where(apart, torch.where(apart, total, 1.0).sqrt(), 0.0)


class _MeanSquares(torch.autograd.Function):
    """`mean_i (v_ji - v_ki)²` of all pairs of rows `(B, n)`, `(B, B)`, a few rows at a time.

    The same operations as in `pair_distances`, which at a batch of images reads and writes `(B, B, n)` from memory a dozen
    times, for a fifth of a server step. Rows are taken so that sums run over whole vectors. Results agree to rounding."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        ctx.save_for_backward(values)
        return torch.cat([(rows[:, None] - values[None]).square_().mean(dim=2) for rows in values.split(_rows_at_once(values))])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """`Σ_k 2 (g_jk + g_kj)(v_j - v_k)/n`, each of the two sums by itself."""
        (values,) = ctx.saved_tensors
        gradient = gradient / values.shape[1]
        parts = []
        size = _rows_at_once(values)
        if size == 1 and torch.equal(gradient, gradient.t()):  # as of a mean: the two sums have the same terms in the same order
            return torch.stack([(row - values).mul_(own).sum(dim=0) for row, own in zip(values, 4 * gradient[:, :, None], strict=True)])
        for rows, own, others in zip(values.split(size), gradient.split(size), gradient.split(size, dim=1), strict=True):
            as_first = (own[:, :, None] * (2 * (rows[:, None] - values[None]))).sum(dim=1)
            as_second = (others[:, :, None] * (2 * (values[:, None] - rows[None]))).neg_().sum(dim=0)
            parts.append(as_first + as_second)
        return torch.cat(parts)


def _rows_at_once(values: Tensor) -> int:
    """So many rows that their differences with all others stay in a cache, and that they fill whole groups of vectors."""
    whole = _VECTORS // math.gcd(values.shape[1], _VECTORS)
    return max(1, _CACHED // values.numel() // whole) * whole


def diversity(outputs: Tensor, conditions: Tensor, norm: str = "mean_sq") -> Tensor:
    """`exp(-mean_{j,k} d(out_j, out_k) · d(cond_j, cond_k))` over all pairs of a batch, in (0, 1]; DFRD Eq. 4.

    `outputs` `(B, ...)`, `conditions` `(B, d)`. The papers' Euclidean norms (`l2`) underflow to 0 for images; the
    default averages over coordinates, as the authors' code does."""
    return torch.exp(-(pair_distances(outputs, norm) * pair_distances(conditions, norm)).mean())
