"""Generators: layer sizes of the paper's tables, merge operators, initial distributions, running statistics."""

from __future__ import annotations

import copy
import re

import pytest
import torch
from torch import nn

from search_spaces.errors import UserError
from tests.exact import assert_as_exact
from trainables.generators import MERGE_OPS, Generator
from trainables.generators.image import initialise


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        # (in, out, kernel, stride, padding) of every transposed convolution, DFRD Tables 7 to 9.
        ((1, 32, 32), [(64, 512, 4, 1, 0), (512, 256, 4, 2, 1), (256, 128, 4, 2, 1), (128, 1, 4, 2, 1)]),
        ((3, 32, 32), [(64, 512, 4, 1, 0), (512, 256, 4, 2, 1), (256, 128, 4, 2, 1), (128, 3, 4, 2, 1)]),
        (
            (3, 64, 64),
            [(64, 512, 4, 1, 0), (512, 256, 4, 2, 1), (256, 128, 4, 2, 1), (128, 64, 4, 2, 1), (64, 3, 4, 2, 1)],
        ),
        ((1, 8, 8), [(64, 128, 4, 1, 0), (128, 64, 4, 2, 1), (64, 1, 3, 1, 1)]),
        ((1, 28, 28), [(64, 256, 7, 1, 0), (256, 128, 4, 2, 1), (128, 64, 4, 2, 1), (64, 1, 3, 1, 1)]),
    ],
)
def test_layers(shape: tuple[int, int, int], expected: list[tuple[int, ...]]) -> None:
    model = Generator(shape, 10, 64, "mul")
    convs = [m for m in model.modules() if isinstance(m, nn.ConvTranspose2d)]
    assert [(c.in_channels, c.out_channels, c.kernel_size[0], c.stride[0], c.padding[0]) for c in convs] == expected
    assert all(c.bias is None for c in convs)
    kinds = ["ConvTranspose2d" if isinstance(m, nn.ConvTranspose2d) else type(m).__name__ for m in model.layers]
    assert kinds[:2] == ["ConvTranspose2d", "ReLU"]
    assert kinds[2:-2] == ["ConvTranspose2d", "BatchNorm2d", "ReLU"] * (len(expected) - 2)
    assert kinds[-2:] == ["ConvTranspose2d", "Tanh"]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        # By the rule for any other size: the shorter side says how often it is doubled, each side where it starts.
        ((1, 9, 21), [(64, 128, (5, 11)), (128, 64, (4, 4)), (64, 1, (3, 3))]),
        ((2, 3, 5), [(64, 64, (3, 5)), (64, 2, (3, 3))]),
        (
            (1, 100, 100),
            [(64, 512, (7, 7)), (512, 512, (4, 4)), (512, 256, (4, 4)), (256, 128, (4, 4)), (128, 64, (4, 4))]
            + [(64, 1, (3, 3))],
        ),
    ],
)
def test_layers_for_other_sizes(shape: tuple[int, int, int], expected: list[tuple[int, int, tuple[int, int]]]) -> None:
    convs = [m for m in Generator(shape, 10, 64, "mul").modules() if isinstance(m, nn.ConvTranspose2d)]
    assert [(c.in_channels, c.out_channels, c.kernel_size) for c in convs] == expected


@pytest.mark.parametrize(
    "shape",
    [(1, 8, 8), (3, 16, 16), (1, 28, 28), (3, 32, 32), (3, 64, 64), (1, 15, 15), (3, 9, 21), (2, 3, 5), (1, 100, 100)],
)
def test_output_shape_and_range(shape: tuple[int, int, int]) -> None:
    model = Generator(shape, 4, 16, "cat")
    images = model(model.merge(torch.randn(5, 16), torch.tensor([0, 1, 2, 3, 0])))
    assert images.shape == (5, *shape)
    assert images.abs().max() <= 1
    assert images.std() > 0


@pytest.mark.numeric
@pytest.mark.parametrize("noise_dim", [64, 100, 200])
def test_images_are_the_same_with_gradients_and_without(noise_dim: int) -> None:
    model = Generator((3, 32, 32), 10, noise_dim, "mul").to(memory_format=torch.channels_last).eval()
    h = torch.randn(16, noise_dim, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        made = model(h)
    assert_as_exact(made, model(h), copy.deepcopy(model).double()(h.double()))


def test_images_are_cut_about_the_centre() -> None:
    model = Generator((1, 33, 35), 4, 8, "none").eval()
    h = torch.randn(2, 8)
    whole = model.layers(h[:, :, None, None])
    assert whole.shape[2:] == (40, 40)
    assert torch.equal(model(h), whole[:, :, 3:36, 2:37])


@pytest.mark.parametrize("op", MERGE_OPS)
def test_merge_operators(op: str) -> None:
    z, y = torch.randn(3, 8), torch.tensor([2, 0, 2])
    onehot = torch.tensor([[0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 1, 0]], dtype=torch.float32)
    model = Generator((1, 8, 8), 4, 8, op)
    assert (model.embedding is None) == (op in ("ncat", "none"))
    e = torch.zeros(3, 8) if model.embedding is None else model.embedding.weight[y]
    expected = {"mul": z * e, "add": z + e, "cat": torch.cat([z, e], 1), "ncat": torch.cat([z, onehot], 1), "none": z}[
        op
    ]
    assert torch.equal(model.merge(z, y), expected)
    assert model.width == expected.shape[1] == {"cat": 16, "ncat": 12}.get(op, 8)


def test_the_embedding_is_trained_through_the_images() -> None:
    model = Generator((1, 8, 8), 4, 8, "mul")
    model(model.merge(torch.randn(6, 8), torch.tensor([0, 1, 2, 0, 1, 2]))).square().mean().backward()
    assert (model.embedding.weight.grad[:3].abs().sum(1) > 0).all()
    assert (model.embedding.weight.grad[3] == 0).all()


def test_initialisation_laws_and_determinism() -> None:
    before = torch.get_rng_state()
    a, b = Generator((3, 32, 32), 100, 64), Generator((3, 32, 32), 100, 64)
    built = a.layers[0].weight.clone()
    assert torch.equal(built, b.layers[0].weight)
    initialise(a, torch.Generator().manual_seed(0))
    assert torch.equal(built, a.layers[0].weight)
    initialise(a, torch.Generator().manual_seed(3))
    initialise(b, torch.Generator().manual_seed(3))
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(a.layers[0].weight, built)
    for (key, x), y in zip(a.state_dict().items(), b.state_dict().values(), strict=True):
        assert torch.equal(x, y), key
    convs = [m.weight for m in a.modules() if isinstance(m, nn.ConvTranspose2d)]
    norms = torch.cat([m.weight for m in a.modules() if isinstance(m, nn.BatchNorm2d)])
    for weight in convs:
        assert weight.mean().item() == pytest.approx(0, abs=1e-3)
        assert weight.std().item() == pytest.approx(0.02, rel=0.02)
    assert norms.mean().item() == pytest.approx(1, abs=0.005)
    assert norms.std().item() == pytest.approx(0.02, rel=0.15)
    assert a.embedding.weight.std().item() == pytest.approx(1, rel=0.03)
    assert a.embedding.weight.mean().item() == pytest.approx(0, abs=0.05)


def test_running_statistics_move_in_training_are_used_in_evaluation_and_reset() -> None:
    model = Generator((1, 8, 8), 4, 8)
    norm = next(m for m in model.modules() if isinstance(m, nn.BatchNorm2d))
    z = torch.randn(32, 8)
    model.eval()(z)
    assert norm.running_var.eq(1).all()
    model.train()(z)
    assert not norm.running_var.eq(1).any()
    whole, half = model.eval()(z), model(z[:16])
    assert_as_exact(half, whole[:16], copy.deepcopy(model).double()(z.double())[:16])
    initialise(model, torch.Generator().manual_seed(0))
    assert norm.running_var.eq(1).all() and norm.num_batches_tracked == 0


def test_unknown_merge_operator() -> None:
    with pytest.raises(UserError, match=re.escape("Unknown merge operator 'mult'. Did you mean 'mul'?")):
        Generator((1, 8, 8), 4, 8, "mult")
