"""Distances of all pairs of rows against the plain formula: values and gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.exact import assert_as_exact
from trainables.kernels.distances import mean_squares, plain

pytestmark = pytest.mark.numeric


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("batch", "size"), [(64, 3072), (64, 784), (65, 768), (256, 33), (8, 5)])
@pytest.mark.parametrize("alike", [False, True])
def test_distances_taken_a_few_rows_at_a_time_are_those_of_the_printed_formula(
    batch: int, size: int, alike: bool
) -> None:
    """Values and gradients, of all rows at once and of a few. Of images almost alike a shortcut would cancel."""
    values = 0.5 + 1e-4 * random(batch, size).float() if alike else random(batch, size).float().tanh()
    weights = random(batch, batch, seed=1).float()

    def results(distances: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> list[torch.Tensor]:
        x = x.requires_grad_()
        apart = distances(x)
        score = (apart * weights.to(x.dtype)).mean()
        return [apart.detach(), *torch.autograd.grad(score if alike else torch.exp(-score), x)]

    fast, expected, exact = (
        results(mean_squares, values.clone()),
        results(plain, values.clone()),
        results(plain, values.double()),
    )
    assert_as_exact(fast, expected, exact)


@pytest.mark.parametrize(("batch", "size"), [(64, 3072), (64, 784)])
def test_gradients_of_a_score_that_treats_both_rows_alike(batch: int, size: int) -> None:
    """As of a mean, where the two sums over pairs have the same terms."""
    values, half = random(batch, size).float().tanh(), random(batch, batch, seed=1)
    weights = half + half.t()

    def gradient(distances: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        x = x.requires_grad_()
        return torch.autograd.grad((distances(x) * weights.to(x.dtype)).mean(), x)[0]

    fast, expected = gradient(mean_squares, values.clone()), gradient(plain, values.clone())
    assert_as_exact(fast, expected, gradient(plain, values.double()))
