"""Convolutions of small maps as matrix products against PyTorch's own: values and gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor, nn

from tests.exact import assert_as_exact
from trainables.kernels import convolution
from trainables.kernels.convolution import Convolution, plain

pytestmark = pytest.mark.numeric

#: (in, out), the map's sides, (kernel, stride, padding), and whether a product takes the convolution's place.
CASES = [
    ((5, 7), (2, 2), (3, 1, 1), True),
    ((5, 7), (2, 2), (3, 2, 1), True),
    ((5, 7), (2, 1), (3, 1, 1), True),
    ((5, 7), (1, 1), (3, 2, 1), True),
    ((5, 7), (2, 2), (5, 1, 2), True),
    ((5, 7), (1, 2), (5, 2, 2), True),
    ((130, 132), (2, 2), (3, 1, 1), True),
    ((130, 132), (2, 1), (3, 2, 1), True),
    ((5, 7), (3, 3), (5, 1, 2), False),
    ((5, 7), (2, 3), (3, 1, 1), False),
    ((5, 7), (2, 2), (3, 1, 2), False),
    ((5, 7), (2, 2), (1, 2, 0), False),
    ((5, 7), (2, 2), (2, 1, 0), False),
]


@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize(("channels", "sides", "kernel", "product"), CASES)
def test_a_product_rounds_no_worse_than_the_convolution(
    channels: tuple[int, int],
    sides: tuple[int, int],
    kernel: tuple[int, int, int],
    product: bool,
    layout: torch.memory_format,
) -> None:
    """Value and gradients, whatever the layout of maps and kernels; without gradients the same bits as with them."""
    torch.manual_seed(0)
    layer = Convolution(*channels, *kernel).to(memory_format=layout)
    x = torch.randn(6, channels[0], *sides).to(memory_format=layout)
    given = [x, *(p.detach() for p in layer.parameters())]

    def reference(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return plain(x, weight, bias, *kernel[1:])

    def ours(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        with _holding(layer, weight, bias):
            return layer(x)

    made = _results(ours, given)
    assert ("Permute" in str(made[0].grad_fn)) == product
    with torch.no_grad():
        assert torch.equal(layer(x), made[0])
    assert_as_exact(made, _results(reference, given), _results(reference, [tensor.double() for tensor in given]))


@pytest.mark.parametrize("laid", [0, 6])
def test_a_product_can_be_differentiated_again(laid: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack that rebuilds images follows the gradient of a gradient. With windows in one matrix, and without."""
    monkeypatch.setattr(convolution, "_LAID", laid)
    layer = Convolution(2, 3, 3, padding=1).double()
    x = torch.randn(2, 2, 2, 2, dtype=torch.float64, requires_grad=True)

    def run(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        with _holding(layer, weight, bias):
            return layer(x)

    assert torch.autograd.gradgradcheck(run, (x, *(p.detach().requires_grad_() for p in layer.parameters())))


def test_elsewhere_it_is_pytorchs_own() -> None:
    """Under bfloat16, where models are stacked, and on another device: `meta`, which computes shapes only."""
    layer, x = Convolution(5, 7, 3, padding=1), torch.randn(4, 5, 2, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(layer(x), nn.Conv2d.forward(layer, x))
    stacked = torch.func.vmap(layer)(x[:, None])
    assert torch.equal(stacked, torch.func.vmap(lambda one: nn.Conv2d.forward(layer, one))(x[:, None]))
    assert layer.to("meta")(x.to("meta")).shape == (4, 7, 2, 2)


@contextmanager
def _holding(layer: Convolution, weight: Tensor, bias: Tensor) -> Iterator[None]:
    """The layer computes with these tensors."""
    before = dict(layer._parameters)
    layer._parameters |= {"weight": weight, "bias": bias}  # type: ignore[dict-item]
    yield
    layer._parameters |= before


def _results(run: Callable[..., Tensor], given: Sequence[Tensor]) -> list[Tensor]:
    """The value at these tensors and the gradients in them."""
    given = [tensor.detach().requires_grad_() for tensor in given]
    y = run(*given)
    slopes = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(y.dtype)
    return [y, *torch.autograd.grad(y, given, slopes)]
