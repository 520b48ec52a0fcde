"""Batch normalisation by the statistics of the batch at hand."""

from __future__ import annotations

from torch import Tensor, nn

from trainables.kernels.normalisation import normalised, normalised_and_pooled


class BatchNorm(nn.BatchNorm2d):
    """Normalises with the batch's own statistics in training *and* evaluation and keeps none, so that
    clients of different widths can be mixed.

    A batch with a single value per channel has zero variance, hence the output is the bias; PyTorch refuses it."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, track_running_stats=False)

    def forward(self, x: Tensor, pool: bool = False) -> Tensor:
        """`(B, C, H, W)` to the same shape, or with `pool` to that of `max_pool`."""
        if x.shape[0] * x.shape[2] * x.shape[3] == 1:
            return x * 0 + self.bias.view(1, -1, 1, 1)
        compute = normalised_and_pooled if pool else normalised
        return compute(x, self.weight, self.bias, self.eps)
