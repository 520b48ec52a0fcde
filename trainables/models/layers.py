"""Batch normalisation by the statistics of the batch at hand, or with running statistics beside them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainables.kernels.normalisation import (
    normalised,
    normalised_and_followed,
    normalised_and_pooled,
    normalised_by,
    normalised_by_and_pooled,
)
from trainables.kernels.pooling import max_pool

#: What a federation's parameter `batch_norm` may be: which statistics models normalise with in evaluation.
BATCH_NORMS = ("batch", "running")
#: Share of a batch's statistics in the running ones, PyTorch's default.
MOMENTUM = 0.1
#: The last parts of the names of running statistics.
STATISTICS = ("running_mean", "running_var")


def is_statistic(name: str) -> bool:
    """Whether the tensor of that name is a running statistic, which follows batches and has no gradient."""
    return name.rpartition(".")[2] in STATISTICS


class BatchNorm(nn.BatchNorm2d):
    """Normalises with the batch's own statistics in training *and* evaluation and keeps none, so that
    clients of different widths can be mixed; after `keep_statistics` it follows them in training and normalises with
    the running ones in evaluation, as PyTorch's layer does.

        running_mean ← 0.9 running_mean + 0.1 mean(batch)
        running_var  ← 0.9 running_var  + 0.1 var(batch), divided by the count less one

    With a scaler c it normalises c·x by the statistics of c·x, which is x by its own with eps/c² for eps: to the same
    bits where c is a power of two, and nothing is multiplied. (Running statistics are those of c·x.)

    A batch with a single value per channel has zero variance, hence the output is the bias; PyTorch refuses it. Where
    running statistics are kept it is normalised by them and does not change them. Batches are not counted
    (`num_batches_tracked`): with a fixed momentum nothing reads the count."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, track_running_stats=False)

    def keep_statistics(self) -> None:
        """From now on there are running statistics: mean 0 and variance 1 until the first batch."""
        self.running_mean, self.running_var = torch.zeros(self.num_features), torch.ones(self.num_features)

    def reset_running_stats(self) -> None:
        """Mean 0 and variance 1 again, where they are kept."""
        if self.running_mean is not None and self.running_var is not None:
            self.running_mean.zero_()
            self.running_var.fill_(1)

    def forward(self, x: Tensor, pool: bool = False, scaler: float = 1.0) -> Tensor:
        """Normalises `scaler` times x: `(B, C, H, W)` to the same shape, or with `pool` to that of `max_pool`."""
        mean, var = self.running_mean, self.running_var
        single = x.shape[0] * x.shape[2] * x.shape[3] == 1
        if mean is None or var is None:
            if single:
                return x * 0 + self.bias.view(1, -1, 1, 1)
            compute = normalised_and_pooled if pool else normalised
            return compute(x, self.weight, self.bias, self.eps / scaler**2)
        if scaler != 1.0:
            x = x * scaler
        if self.training and not single:
            followed = normalised_and_followed(x, mean, var, self.weight, self.bias, self.eps, MOMENTUM)
            return max_pool(followed) if pool else followed
        by = normalised_by_and_pooled if pool else normalised_by
        return by(x, mean, var, self.weight, self.bias, self.eps)
