"""Mean squared differences of all pairs of rows.

    plain(v)[j, k] = mean_i (v_ji - v_ki)²

At a batch of images PyTorch's way reads and writes `(B, B, n)` numbers from memory a dozen times, which was a fifth of
a server step. Here a few rows at a time are compared with all others, so that their differences stay in the cache, and
the gradient is one sum over them, where PyTorch's runs back through every operation.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

#: Numbers that stay in a core's cache from one operation to the next, and numbers a core sums up at once.
_CACHED, _VECTORS = 1 << 18, 64


def plain(values: Tensor) -> Tensor:
    """The reference: rows `(B, n)` to `(B, B)`. Differences are formed one by one, as the shortcut |a|²+|b|²-2ab
    cancels."""
    return (values[:, None] - values[None]).square().mean(dim=2)


def mean_squares(values: Tensor) -> Tensor:
    """What `plain` computes of rows `(B, n)`, `(B, B)`: by `plain` itself on a GPU."""
    return plain(values) if values.device.type != "cpu" else _MeanSquares.apply(values)


class _MeanSquares(torch.autograd.Function):
    """`mean_i (v_ji - v_ki)²` of all pairs of rows `(B, n)`, `(B, B)`, a few rows at a time.

    The same operations as in `plain`. So many rows are taken that sums run over whole vectors. Results agree to
    rounding."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        ctx.save_for_backward(values)
        return torch.cat(
            [(rows[:, None] - values[None]).square_().mean(dim=2) for rows in values.split(_rows_at_once(values))]
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """`Σ_k 2 (g_jk + g_kj)(v_j - v_k)/n`."""
        (values,) = ctx.saved_tensors
        size = _rows_at_once(values)
        both = (gradient + gradient.t()) * (2 / values.shape[1])
        return torch.cat(
            [
                (rows[:, None] - values[None]).mul_(own[:, :, None]).sum(dim=1)
                for rows, own in zip(values.split(size), both.split(size), strict=True)
            ]
        )


def _rows_at_once(values: Tensor) -> int:
    """So many rows that their differences with all others stay in a cache, and that they fill whole groups of
    vectors."""
    whole = _VECTORS // math.gcd(values.shape[1], _VECTORS)
    return max(1, _CACHED // values.numel() // whole) * whole
