"""Transposed convolutions computed by other means against PyTorch's own: values and gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.exact import assert_as_exact
from trainables.kernels.upsampling import Enlarging, Upsampling, plain, plain_enlarging

pytestmark = pytest.mark.numeric

#: (in, out, batch), the map's sides, (kernel, stride, padding), and what is computed without gradients in float32, and
#: under bfloat16.
PRODUCTS = [
    ((6, 5, 3), (1, 1), (4, 1, 0), "_rows", "_rows"),
    ((6, 5, 3), (1, 1), ((7, 6), 1, 0), "_rows", "_rows"),
    ((24, 5, 2), (2, 3), (4, 2, 1), None, "_overlapped"),
    ((80, 6, 1), (4, 4), (4, 2, 1), None, "_overlapped"),
    ((512, 33, 8), (4, 4), (4, 2, 1), "_side_by_side", "_overlapped"),
    ((512, 33, 56), (4, 5), (4, 2, 1), "_side_by_side", "_overlapped"),
    ((512, 33, 120), (4, 4), (4, 2, 1), "_side_by_side", "_overlapped"),  # 4 · 512 channels outnumber 120 · 16 pixels
    ((6, 5, 3), (4, 4), (4, 2, 1), None, None),
    ((26, 3, 3), (4, 4), (3, 1, 1), None, None),
    ((27, 3, 3), (4, 5), (3, 1, 1), "_folded", None),
    ((9, 1, 3), (4, 4), (3, 1, 1), "_folded", None),
    ((48, 3, 12), (4, 5), (4, 2, 1), "_folded", None),
    ((40, 3, 2), (3, 4), ((3, 4), 1, 1), "_folded", None),
]
UPSAMPLINGS = [case[:3] for case in PRODUCTS]


@pytest.mark.parametrize(("sizes", "side", "kernel", "plainly", "low"), PRODUCTS)
def test_upsampling_by_other_means_is_the_transposed_convolution(
    sizes: tuple[int, int, int],
    side: tuple[int, int],
    kernel: tuple,
    plainly: str | None,
    low: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whole numbers, so that bfloat16, which products take in, and sums are exact in whatever order: the bits of
    float64."""
    channels, out, batch = sizes
    layer = Upsampling(channels, out, *kernel, bias=False).to(memory_format=torch.channels_last)
    taken: list[str] = []
    for name in ("_rows", "_overlapped", "_side_by_side", "_folded"):
        original = getattr(layer, name)
        monkeypatch.setattr(layer, name, lambda *a, name=name, original=original: taken.append(name) or original(*a))
    with torch.no_grad():
        layer.weight.copy_(torch.randn_like(layer.weight).round().clamp(-1, 1))
    x = torch.randn(batch, channels, *side).round().clamp(-1, 1).requires_grad_()
    exact = plain(x.double(), layer.weight.double(), *kernel[1:])
    expected = exact.float()
    assert torch.equal(expected.bfloat16().double(), exact)
    assert torch.equal(layer(x), expected) and not taken
    with torch.no_grad():
        without = layer(x)
    assert torch.equal(without, expected)
    assert plainly != "_folded" or without.is_contiguous(memory_format=torch.channels_last)
    assert taken == ([plainly] if plainly else [])
    taken.clear()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        made = layer(x)
        assert taken[:1] == ([low] if low else [])
        stacked = torch.func.vmap(layer)(torch.stack([x, 2 * x]))
    assert made.dtype == torch.bfloat16
    assert made.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(made.float(), expected)
    assert torch.equal(stacked.float(), torch.stack([expected, 2 * expected]))
    weights = torch.randn_like(expected).round().clamp(-1, 1)
    for ours, theirs in zip(
        *(torch.autograd.grad((y * weights).sum(), (x, layer.weight)) for y in (made, exact)), strict=True
    ):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize(("sizes", "side", "kernel"), UPSAMPLINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_upsampling_by_other_means_rounds_no_worse(
    sizes: tuple[int, int, int], side: tuple[int, int], kernel: tuple, dtype: torch.dtype
) -> None:
    """The plain way is PyTorch's transposed convolution; under bfloat16 both are given what that rounds to. Gradients
    where they can be had."""
    channels, out, batch = sizes
    layer = Upsampling(channels, out, *kernel, bias=False).to(memory_format=torch.channels_last)
    generator = torch.Generator().manual_seed(0)
    low = dtype == torch.bfloat16
    with torch.no_grad():
        layer.weight.copy_(torch.randn(layer.weight.shape, generator=generator).to(dtype))
    x = torch.randn(batch, channels, *side, generator=generator).to(dtype).float().requires_grad_()

    def results(run: Callable[[Tensor, Tensor], Tensor], x: Tensor, weight: Tensor) -> list[Tensor]:
        x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
        y = run(x, weight)
        slopes = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(dtype).to(y.dtype)
        return [y, *torch.autograd.grad(y, (x, weight), slopes)]

    def reference(x: Tensor, weight: Tensor) -> Tensor:
        return plain(x, weight, *kernel[1:])

    def ours(x: Tensor, weight: Tensor) -> Tensor:
        return torch.func.functional_call(layer, {"weight": weight}, (x,))

    exact = results(reference, x.double(), layer.weight.double())
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=low):
        made, expected = results(ours, x, layer.weight), results(reference, x, layer.weight)
        with torch.no_grad():
            without = layer(x)
    assert without.dtype == made[0].dtype == dtype
    assert_as_exact([without, *made], [expected[0], *expected], [exact[0], *exact], eps=torch.finfo(dtype).eps)


def test_on_another_device_it_is_pytorchs_own() -> None:
    """The `meta` device, which computes shapes only."""
    layer = Upsampling(512, 3, 4, 2, 1, bias=False).to("meta")
    assert layer(torch.empty(8, 512, 4, 4, device="meta")).shape == (8, 3, 8, 8)


@pytest.mark.parametrize("side", [(4, 4), (5, 7), (3, 4)])
def test_enlarging_by_sums_of_weights_rounds_no_worse(side: tuple[int, int]) -> None:
    """Values and gradients. Below 4×4, under bfloat16 and where models are stacked both operations are PyTorch's, to
    the bit."""
    torch.manual_seed(0)
    layer = Enlarging(5, 3).to(memory_format=torch.channels_last)
    x, weight, bias = torch.randn(6, 5, *side), layer.weight.detach(), layer.bias.detach()

    def results(run: Callable[..., Tensor], *given: Tensor) -> list[Tensor]:
        given = tuple(tensor.clone().requires_grad_() for tensor in given)
        y = run(*given)
        slopes = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(y.dtype)
        return [y, *torch.autograd.grad(y, given, slopes)]

    def ours(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        layer._parameters |= {"weight": weight, "bias": bias}  # type: ignore[dict-item]
        return layer(x)

    made, expected = results(ours, x, weight, bias), results(plain_enlarging, x, weight, bias)
    assert torch.equal(made[0], expected[0]) == (min(side) < 4)
    assert_as_exact(made, expected, results(plain_enlarging, x.double(), weight.double(), bias.double()))
    stacked = torch.func.vmap(layer)(x[:, None]).flatten(0, 1)
    torch.testing.assert_close(stacked, expected[0])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(layer(x), plain_enlarging(x, weight, bias))


def test_stacked_maps_have_the_slopes_of_each_by_itself() -> None:
    """Three federations' maps as one, with a gradient that `vmap` sees through."""
    up, x = Upsampling(2, 3, 4, stride=2, padding=1, bias=False), torch.randn(3, 5, 2, 4, 4)
    slope = torch.func.grad(lambda one: (up._overlapped(one) ** 2).sum())
    torch.testing.assert_close(torch.func.vmap(slope)(x), torch.stack([slope(one) for one in x]))
