"""Convolution and pooling as one operation against the two that PyTorch has, value by value and gradient by
gradient."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from tests.exact import MARGIN, assert_as_exact
from tests.float64 import in_float64, to_float64
from trainables import models
from trainables.kernels import pooling
from trainables.kernels.pooling import AT_ONCE, FEWEST, max_pool, padded, plain, plain_max_pool, pooled

pytestmark = pytest.mark.numeric


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def side_by_side(x: Tensor) -> Tensor:
    """The same maps, contiguous over the batch."""
    return x.permute(1, 2, 3, 0).contiguous().permute(3, 0, 1, 2)


def layer(channels: int, out: int, k: int, seed: int = 0) -> nn.Conv2d:
    conv = nn.Conv2d(channels, out, k).to(memory_format=torch.channels_last)
    models.initialise(conv, torch.Generator().manual_seed(seed))
    return conv


def decided(job: Callable[[Tensor], Any], draw: Callable[[int], Tensor]) -> tuple[Tensor, Any]:
    """The first draw, in float32, with which the job comes near no turn in float64 (see `tests.exact`), and what it
    gives there."""
    for seed in range(100):
        x = draw(seed).float()
        with in_float64() as mode:
            made = job(x.double())
        if mode.margin > MARGIN:
            return x, made
    raise AssertionError("all draws come near a turn")


@pytest.mark.parametrize(
    ("shape", "out", "k"),
    [
        ((2, 1, 32, 32), 6, 5),
        ((64, 6, 14, 14), 16, 5),
        ((3, 2, 11, 14), 3, 5),  # the last row of the map, 7 high, is not pooled
        ((3, 2, 12, 9), 3, 3),
        ((4, 3, 6, 6), 2, 1),
        ((AT_ONCE + 5, 1, 10, 10), 2, 5),  # in two parts
        ((2, 1, 6, AT_ONCE + 12), 2, 5),  # wider than a part has samples
    ],
)
def test_values_and_gradients_of_both_orders(shape: tuple[int, ...], out: int, k: int) -> None:
    conv = layer(shape[1], out, k)
    precise = copy.deepcopy(conv).double()
    weights = draw(shape[0], out, (shape[2] - k + 1) // 2, (shape[3] - k + 1) // 2, seed=1)

    def results(run: Callable[[nn.Conv2d, Tensor], Tensor], conv: nn.Conv2d, x: Tensor) -> list[Any]:
        x = x.detach().requires_grad_()
        known = [x, *conv.parameters()]
        y = run(conv, x)
        first = torch.autograd.grad((y.square() * weights.to(y.dtype)).sum(), known, create_graph=True)
        # As in an attack that differentiates gradients.
        return [y, first, torch.autograd.grad(sum((g**3).sum() for g in first), known)]

    x, exact = decided(lambda x: results(plain, precise, x), lambda seed: side_by_side(draw(*shape, seed=seed)))
    made = results(pooled, conv, x)
    assert made[0].stride(0) == 1 and made[0].shape == exact[0].shape
    assert_as_exact(made, results(plain, conv, x), exact)


def test_a_layer_in_double_precision_computes_in_double_precision() -> None:
    conv, x = layer(2, 3, 3).double(), side_by_side(draw(4, 2, 9, 8))
    made, reference = pooled(conv, x), plain(conv, x)
    assert made.dtype == torch.float64 and made.stride(0) == 1
    torch.testing.assert_close(made, reference, rtol=1e-12, atol=1e-12)


def test_among_equal_values_the_first_has_the_gradient() -> None:
    """Whole numbers: sums are exact in any order, and many values are equal."""
    conv = layer(1, 2, 3)
    with torch.no_grad():
        conv.weight.copy_(draw(2, 1, 3, 3).round())
        conv.bias.zero_()
    x = side_by_side(draw(4, 1, 8, 8).round().clamp(0, 1).float()).requires_grad_()
    values = conv(x)
    four = F.unfold(values.flatten(0, 1)[:, None], 2, stride=2)
    assert ((four == four.amax(dim=1, keepdim=True)).sum(dim=1) > 1).double().mean() > 0.2
    weights = (4 * draw(4, 2, 3, 3, seed=1)).round().float()
    ours, theirs = (torch.autograd.grad((y * weights).sum(), x)[0] for y in (pooled(conv, x), plain(conv, x)))
    assert torch.equal(ours, theirs) and ours.unique().numel() > 5


@pytest.mark.parametrize(
    "shape",
    [(FEWEST, 1, 28, 28), (FEWEST, 1, 9, 8), (FEWEST - 1, 1, 28, 28), (FEWEST, 3, 28, 28), (FEWEST, 2, 9, 8)],
)
def test_images_are_padded_and_laid_side_by_side_where_it_pays(shape: tuple[int, ...]) -> None:
    x = draw(*shape)
    made = padded(x, (1, 2, 3, 4))
    assert torch.equal(made, F.pad(x, (1, 2, 3, 4)))
    assert (made.stride(0) == 1) == (shape[0] >= FEWEST and shape[1] == 1)
    assert torch.equal(padded(x, (0, 0, 0, 0)), x)


@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_lenet_computes_the_same_of_many_samples_as_of_few(rate: float) -> None:
    model = models.build("lenet5", (1, 28, 28), 10, rate, scaler=True).to(memory_format=torch.channels_last)
    precise = copy.deepcopy(model).double()
    y = torch.arange(FEWEST) % 10

    def many(model: nn.Module, x: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(F.cross_entropy(model(x), y), list(model.parameters()))

    def few(model: nn.Module, x: Tensor) -> list[Tensor]:
        parts = [
            torch.autograd.grad(F.cross_entropy(model(a), b), list(model.parameters()))
            for a, b in zip(x.split(32), y.split(32), strict=True)
        ]
        return [(one + other) / 2 for one, other in zip(*parts, strict=True)]

    x, exact = decided(lambda x: few(precise, x), lambda seed: draw(FEWEST, 1, 28, 28, seed=seed))
    assert_as_exact(many(model, x), few(model, x), exact)


def test_many_models_at_once() -> None:
    model = models.build("lenet5", (1, 28, 28), 10)
    precise = copy.deepcopy(model).double()
    y = torch.arange(FEWEST) % 10
    params = [{k: v.detach() * factor for k, v in model.named_parameters()} for factor in (1.0, 1.1)]

    def slopes(model: nn.Module, params: dict[str, Tensor], x: Tensor) -> dict[str, Tensor]:
        return grad(lambda p: F.cross_entropy(functional_call(model, p, (x,)), y))(params)

    found = [
        decided(
            lambda x, i=i: slopes(precise, to_float64(params[i]), x),
            lambda seed, i=i: draw(FEWEST, 1, 28, 28, seed=2 * seed + i),
        )
        for i in range(2)
    ]
    x = torch.stack([x for x, _ in found])
    together = vmap(lambda p, x: slopes(model, p, x))({k: torch.stack([p[k] for p in params]) for k in params[0]}, x)
    for i, (alone, exact) in enumerate(found):
        assert_as_exact({k: v[i] for k, v in together.items()}, slopes(model, params[i], alone), exact)


def test_measuring_first_does_not_hinder_training() -> None:
    """What is made once and kept is not made in inference mode."""
    conv, x = layer(1, 2, 7), draw(FEWEST, 1, 28, 28).float()
    with torch.inference_mode():
        pooled(conv, padded(x, (0, 0, 0, 0)))
    pooled(conv, padded(x, (0, 0, 0, 0))).sum().backward()
    assert conv.weight.grad is not None


def test_pooling_gives_the_first_of_equal_values_the_whole_gradient() -> None:
    x = torch.ones(1, 1, 4, 4, requires_grad=True)
    max_pool(x).sum().backward()
    assert x.grad is not None
    assert x.grad[0, 0].tolist() == [[1, 0, 1, 0], [0, 0, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]]


@pytest.mark.parametrize("side", [(1, 1), (1, 5), (4, 1)])
def test_a_map_of_less_than_two_by_two_is_left_alone(side: tuple[int, int]) -> None:
    x = draw(2, 3, *side)
    assert torch.equal(plain_max_pool(x), x) and torch.equal(max_pool(x), x)


def test_what_is_not_a_number_stays_so() -> None:
    conv, x = layer(1, 2, 5), draw(FEWEST, 1, 28, 28).float()
    x[0, 0, 14, 14] = torch.nan
    made = pooled(conv, padded(x, (2, 2, 2, 2)))
    assert made[0].isnan().any() and not made[1:].isnan().any()


@pytest.mark.parametrize("shape", [(3, 32, 8, 8), (3, 5, 9, 7), (2, 1, 2, 3)])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_pooling_without_gradients_gives_the_same_bits(shape: tuple[int, ...], layout: torch.memory_format) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).contiguous(memory_format=layout)
    x[0, 0, 0, 0] = torch.nan
    with_gradients = max_pool(x.clone().requires_grad_())
    assert torch.equal(plain_max_pool(x).nan_to_num(1e9), with_gradients.detach().nan_to_num(1e9))
    assert with_gradients.requires_grad and not max_pool(x).requires_grad
    assert max_pool(x).shape == with_gradients.shape
    assert torch.equal(max_pool(x).nan_to_num(1e9), with_gradients.detach().nan_to_num(1e9))


def test_stacked_maps_have_the_slopes_of_each_by_itself() -> None:
    """Three federations' maps as one, with a gradient that `vmap` sees through."""
    weight = pooling._at_four_places(torch.randn(4, 1, 3, 3))
    slope = grad(lambda one: (pooling._largest(weight, one, 3) ** 2).sum())
    x = torch.randn(3, 1, 8, 8, 5)
    torch.testing.assert_close(vmap(slope)(x), torch.stack([slope(one) for one in x]))
