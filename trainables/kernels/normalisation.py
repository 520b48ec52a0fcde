"""Normalisation by the statistics of the batch, or by running ones, and the max-pooling behind it.

    plain(x)  =  max_pool2d(batch_norm(x), 2)

Where no gradient is asked for, only what pooling leaves is normalised, by the mean and variance of the whole map: a
quarter of the values. The largest of four values is still the largest after normalisation where the layer's weight is
positive.
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
    # `F.batch_norm` of some releases (2.11) refuses an eps of 0, the operation behind it takes it.
    ones = torch.ones_like(scale)
    return torch.batch_norm(max_pool(x), scale, bias, mean.to(scale.dtype), ones, False, 0.0, 0.0, False)


def normalised_and_followed(
    x: Tensor, mean: Tensor, var: Tensor, weight: Tensor, bias: Tensor, eps: float, momentum: float
) -> Tensor:
    """What `normalised` gives, to the same bits; the running statistics `mean` and `var` `(C,)` are moved in place by
    `momentum` towards the batch's mean and its variance divided by the count less one."""
    if x.dtype == mean.dtype:
        return F.batch_norm(x, mean, var, weight, bias, True, momentum, eps)
    with torch.no_grad():  # bfloat16: the statistics stay float32, which vmap has no rule for within one operation
        batch_var, batch_mean = torch.var_mean(x.to(mean.dtype), dim=(0, 2, 3), correction=1)
        mean.mul_(1 - momentum).add_(momentum * batch_mean)
        var.mul_(1 - momentum).add_(momentum * batch_var)
    return normalised(x, weight, bias, eps)


def normalised_by(x: Tensor, mean: Tensor, var: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Normalisation by given statistics `(C,)`, of the same shape as `x`."""
    if x.dtype == mean.dtype:
        return F.batch_norm(x, mean, var, weight, bias, False, 0.0, eps)
    # Rounded to bfloat16, a mean that is large beside the deviation would move everything.
    scale = weight / (var + eps).sqrt()
    shift = bias - mean * scale
    return (x.to(mean.dtype) * scale.view(1, -1, 1, 1) + shift.view(1, -1, 1, 1)).to(x.dtype)


def normalised_by_and_pooled(x: Tensor, mean: Tensor, var: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """The same and max-pooling, to the same bits: where the weight is positive the order of values stays."""
    if _after_pooling(x, weight):
        return normalised_by(max_pool(x), mean, var, weight, bias, eps)
    return max_pool(normalised_by(x, mean, var, weight, bias, eps))


def _after_pooling(x: Tensor, weight: Tensor) -> bool:
    """Whether it is enough to normalise what pooling leaves. (To look at a GPU's weights, the processor would have to
    wait for it.)"""
    if x.device.type != "cpu" or torch.is_grad_enabled() or torch._C._are_functorch_transforms_active():
        return False
    return bool((weight > 0).all())
