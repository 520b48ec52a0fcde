"""Normalisation by the statistics of the batch and the max-pooling behind it, where no gradient is asked for.

    plain(x)  =  max_pool2d(batch_norm(x), 2)

Only what pooling leaves is normalised, by the mean and variance of the whole map: a quarter of the values. The largest
of four values is still the largest after normalisation where the layer's weight is positive.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.kernels.pooling import max_pool, plain_max_pool


def plain(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """The reference: `(B, C, H, W)` to `(B, C, H//2, W//2)`, for weight and bias `(C,)`."""
    return plain_max_pool(normalised(x, weight, bias, eps))


def normalised(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Batch normalisation by the batch's own statistics, of the same shape as `x`."""
    # Under bfloat16 the statistics are float32 inside all the same; vmap has no rule for weights of another type.
    return F.batch_norm(x, None, None, weight.to(x.dtype), bias.to(x.dtype), True, 0.0, eps)


def normalised_and_pooled(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """What `plain` computes, to rounding; in float32 to the same bits where it was compared."""
    if not _after_pooling(x, weight):
        return max_pool(normalised(x, weight, bias, eps))
    mean, variance = torch.batch_norm_update_stats(x, None, None, 0.0)
    # PyTorch forms the scale in double precision from a batch's statistics, but not from given ones. So it is formed
    # here, and PyTorch is given a variance of 1.
    scale = (1 / (variance.double() + eps).sqrt()).to(weight.dtype) * weight
    return F.batch_norm(max_pool(x), mean.to(scale.dtype), torch.ones_like(scale), scale, bias, False, 0.0, 0.0)


def _after_pooling(x: Tensor, weight: Tensor) -> bool:
    """Whether it is enough to normalise what pooling leaves. (To look at a GPU's weights, the processor would have to
    wait for it.)"""
    if x.device.type != "cpu" or torch.is_grad_enabled() or torch._C._are_functorch_transforms_active():
        return False
    return bool((weight > 0).all())
