"""FedKF's generator of images: its sizes, its layers by hand, how it is drawn."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.exact import assert_as_exact
from trainables.generators.noise import NoiseGenerator
from trainables.models.base import initialise


@pytest.mark.parametrize(
    ("shape", "wide"),
    [
        ((1, 8, 8), 64),
        ((3, 27, 27), 64),
        ((3, 28, 28), 128),
        ((1, 32, 32), 128),
        ((1, 28, 8), 128),  # by the longer side
        ((1, 8, 28), 128),
        ((30, 8, 8), 64),  # channels are no side
    ],
)
def test_sizes(shape: tuple[int, int, int], wide: int) -> None:
    made = NoiseGenerator(shape, 16, [0.5] * shape[0], [0.25] * shape[0])
    start = (-(-shape[1] // 4), -(-shape[2] // 4))
    assert made.linear.weight.shape == (wide * start[0] * start[1], 16)
    assert [tuple(conv.weight.shape) for conv in (made.conv1, made.conv2, made.conv3)] == [
        (wide, wide, 3, 3),
        (wide // 2, wide, 3, 3),
        (shape[0], wide // 2, 3, 3),
    ]
    assert [len(norm.weight) for norm in (made.norm0, made.norm1, made.norm2)] == [wide, wide, wide // 2]
    assert made(torch.randn(3, 16)).shape == (3, *shape)


def normed(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """By the statistics of the batch."""
    mean = x.mean((0, 2, 3), keepdim=True)
    var = (x - mean).square().mean((0, 2, 3), keepdim=True)
    return (x - mean) / (var + 1e-5).sqrt() * weight[:, None, None] + bias[:, None, None]


def twice(x: Tensor) -> Tensor:
    """Every pixel as two by two."""
    return x.repeat_interleave(2, 2).repeat_interleave(2, 3)


def by_hand(made: NoiseGenerator, z: Tensor, dtype: torch.dtype) -> Tensor:
    """linear, norm; twice (doubled, 3×3, norm, leaky ReLU of 0.2); 3×3, sigmoid."""
    t = {name: tensor.detach().to(dtype) for name, tensor in made.named_parameters()}
    x = (z.to(dtype) @ t["linear.weight"].T + t["linear.bias"]).view(len(z), -1, *made.start)
    x = normed(x, t["norm0.weight"], t["norm0.bias"])
    for n in (1, 2):
        x = F.conv2d(twice(x), t[f"conv{n}.weight"], t[f"conv{n}.bias"], padding=1)
        x = normed(x, t[f"norm{n}.weight"], t[f"norm{n}.bias"])
        x = torch.where(x > 0, x, 0.2 * x)
    return 1 / (1 + (-F.conv2d(x, t["conv3.weight"], t["conv3.bias"], padding=1)).exp())


@pytest.mark.numeric
def test_images_are_those_of_the_layers_by_hand_cut_about_the_centre_and_normalised() -> None:
    mean, std = torch.tensor((0.3, 0.6)), torch.tensor((0.2, 0.7))
    made = NoiseGenerator((2, 6, 10), 4, mean.tolist(), std.tolist())
    random = torch.Generator().manual_seed(1)
    for norm in (made.norm0, made.norm1, made.norm2):
        norm.weight.data.normal_(generator=random)
        norm.bias.data.normal_(generator=random)
    z = torch.randn(9, 4, generator=random)
    plain, exact = (by_hand(made, z, dtype) for dtype in (torch.float32, torch.float64))
    assert exact.shape == (9, 2, 8, 12)
    expected = [
        (x[:, :, 1:7, 1:11] - mean.to(x.dtype)[:, None, None]) / std.to(x.dtype)[:, None, None] for x in (plain, exact)
    ]
    assert_as_exact(made(z), *expected)


def test_it_is_built_with_the_weights_of_a_fixed_seed_and_keeps_no_statistics() -> None:
    before = torch.get_rng_state()
    a, b = (NoiseGenerator((1, 8, 8), 4, [0.5], [0.5]) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    initialise(b, torch.Generator().manual_seed(0))
    assert all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))
    assert not any("mean" in name or "std" in name for name in a.state_dict())
