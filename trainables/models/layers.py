"""Batch normalisation by the statistics of the batch at hand."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainables.kernels.pooling import max_pool


class BatchNorm(nn.BatchNorm2d):
    """Normalises with the batch's own statistics in training *and* evaluation and keeps none, so that
    clients of different widths can be mixed.

    A batch with a single value per channel has zero variance, hence the output is the bias; PyTorch refuses it."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, track_running_stats=False)

    def forward(self, x: Tensor, pool: bool = False) -> Tensor:
        """`(B, C, H, W)` to the same shape, or with `pool` to that of `max_pool`.

        Without gradients, on a CPU, only what pooling leaves is normalised, by the statistics of the whole map: the largest stays the
        largest where weights are positive. To rounding; in float32 to the same bits where it was compared."""
        if x.shape[0] * x.shape[2] * x.shape[3] == 1:
            return x * 0 + self.bias.view(1, -1, 1, 1)
        if pool and self._after_pooling(x):
            return self._pooled(x)
        # Under bfloat16 the statistics are float32 inside all the same; vmap has no rule for weights of another type.
        normalised = F.batch_norm(x, None, None, self.weight.to(x.dtype), self.bias.to(x.dtype), True, 0.0, self.eps)
        return max_pool(normalised) if pool else normalised

    def _after_pooling(self, x: Tensor) -> bool:
        """Whether it is enough to normalise what pooling leaves. (A GPU would have to be waited for.)"""
        if x.device.type != "cpu" or torch.is_grad_enabled() or torch._C._are_functorch_transforms_active():
            return False
        return bool((self.weight > 0).all())

    def _pooled(self, x: Tensor) -> Tensor:
        mean, variance = torch.batch_norm_update_stats(x, None, None, 0.0)
        # As PyTorch forms it from a batch's statistics, in double precision; from given ones it would not, so it is given a variance of 1.
        scale = (1 / (variance.double() + self.eps).sqrt()).to(self.weight.dtype) * self.weight
        return F.batch_norm(max_pool(x), mean.to(scale.dtype), torch.ones_like(scale), scale, self.bias, False, 0.0, 0.0)
