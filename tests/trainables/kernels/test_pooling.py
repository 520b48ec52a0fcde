"""Convolution and pooling as one operation against the two that PyTorch has, value by value and gradient by gradient."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from trainables import models
from trainables.kernels.pooling import AT_ONCE, FEWEST, padded, pooled


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def side_by_side(x: Tensor) -> Tensor:
    """The same maps, contiguous over the batch."""
    return x.permute(1, 2, 3, 0).contiguous().permute(3, 0, 1, 2)


def layer(channels: int, out: int, k: int, seed: int = 0) -> nn.Conv2d:
    conv = nn.Conv2d(channels, out, k).double().to(memory_format=torch.channels_last)
    models.initialise(conv, torch.Generator().manual_seed(seed))
    return conv


@pytest.mark.parametrize(("shape", "out", "k"), [
    ((2, 1, 32, 32), 6, 5),
    ((64, 6, 14, 14), 16, 5),
    ((3, 2, 11, 14), 3, 5),  # the last row of the map, 7 high, is not pooled
    ((3, 2, 12, 9), 3, 3),
    ((4, 3, 6, 6), 2, 1),
    ((AT_ONCE + 5, 1, 10, 10), 2, 5),  # in two parts
])
def test_values_and_gradients_of_both_orders(shape: tuple[int, ...], out: int, k: int) -> None:
    conv, x = layer(shape[1], out, k), side_by_side(draw(*shape)).requires_grad_()
    made, expected = pooled(conv, x), F.max_pool2d(conv(x), 2)
    assert made.stride(0) == 1 and made.shape == expected.shape
    torch.testing.assert_close(made, expected, rtol=1e-12, atol=1e-12)
    weights = draw(*made.shape, seed=1)
    known = [x, *conv.parameters()]
    first = [torch.autograd.grad((y.square() * weights).sum(), known, create_graph=True) for y in (made, expected)]
    for ours, theirs in zip(*first, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)
    # As in an attack that differentiates gradients.
    second = [torch.autograd.grad(sum((g**3).sum() for g in gradients), known) for gradients in first]
    for ours, theirs in zip(*second, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_among_equal_values_the_first_has_the_gradient() -> None:
    """Whole numbers: sums are exact and many values are equal."""
    conv = layer(1, 2, 3)
    with torch.no_grad():
        conv.weight.copy_(draw(2, 1, 3, 3).round())
    x = side_by_side(draw(4, 1, 8, 8).round().clamp(0, 1)).requires_grad_()
    values = conv(x)
    four = F.unfold(values.flatten(0, 1)[:, None], 2, stride=2)
    assert ((four == four.amax(dim=1, keepdim=True)).sum(dim=1) > 1).double().mean() > 0.2
    weights = draw(4, 2, 3, 3, seed=1)
    ours, theirs = (torch.autograd.grad((y * weights).sum(), x)[0] for y in (pooled(conv, x), F.max_pool2d(values, 2)))
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(FEWEST, 1, 28, 28), (FEWEST, 1, 9, 8), (FEWEST - 1, 1, 28, 28), (FEWEST, 3, 28, 28)])
def test_images_are_padded_and_laid_side_by_side_where_it_pays(shape: tuple[int, ...]) -> None:
    x = draw(*shape)
    made = padded(x, (1, 2, 3, 4))
    assert torch.equal(made, F.pad(x, (1, 2, 3, 4)))
    assert (made.stride(0) == 1) == (shape[0] >= FEWEST and shape[1] == 1)
    assert torch.equal(padded(x, (0, 0, 0, 0)), x)


@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_lenet_computes_the_same_of_many_samples_as_of_few(rate: float) -> None:
    model = models.build("lenet5", (1, 28, 28), 10, rate, scaler=True).double().to(memory_format=torch.channels_last)
    x, y = draw(FEWEST, 1, 28, 28), torch.arange(FEWEST) % 10
    many = torch.autograd.grad(F.cross_entropy(model(x), y), list(model.parameters()))
    few = [torch.autograd.grad(F.cross_entropy(model(a), b), list(model.parameters())) for a, b in zip(x.split(32), y.split(32), strict=True)]
    for whole, parts in zip(many, zip(*few, strict=True), strict=True):
        torch.testing.assert_close(whole, sum(parts) / len(few), rtol=1e-11, atol=1e-13)


def test_many_models_at_once() -> None:
    model = models.build("lenet5", (1, 28, 28), 10).double()
    x, y = draw(2, FEWEST, 1, 28, 28), torch.arange(FEWEST) % 10
    params = {k: torch.stack([v, 1.1 * v]).detach() for k, v in model.named_parameters()}

    def loss(params: dict[str, Tensor], x: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(model, params, (x,)), y)

    together = vmap(grad(loss))(params, x)
    for i in range(2):
        alone = grad(loss)({k: v[i] for k, v in params.items()}, x[i])
        for key, value in alone.items():
            torch.testing.assert_close(together[key][i], value, rtol=1e-11, atol=1e-13)


def test_measuring_first_does_not_hinder_training() -> None:
    """What is made once and kept is not made in inference mode."""
    conv, x = layer(1, 2, 7).float(), draw(FEWEST, 1, 28, 28).float()
    with torch.inference_mode():
        pooled(conv, padded(x, (0, 0, 0, 0)))
    pooled(conv, padded(x, (0, 0, 0, 0))).sum().backward()
    assert conv.weight.grad is not None


def test_what_is_not_a_number_stays_so() -> None:
    conv, x = layer(1, 2, 5), draw(FEWEST, 1, 28, 28)
    x[0, 0, 14, 14] = torch.nan
    made = pooled(conv, padded(x, (2, 2, 2, 2)))
    assert made[0].isnan().any() and not made[1:].isnan().any()
