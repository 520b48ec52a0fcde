"""Models: sizes, the width contract (a sub-model is an index set per group), the scaler, initialisation."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from search_spaces.errors import UserError
from trainables import models
from trainables.models.base import initialise
from trainables.models.layers import BatchNorm

SHAPES = {
    "lenet5": (1, 28, 28),
    "lenet5_paper": (1, 28, 28),
    "lenet_code": (1, 28, 28),
    "lenet_code_64": (1, 8, 8),
    "cnn": (3, 16, 16),
    "cnn_small": (1, 8, 8),
    "cnn2": (3, 16, 16),
    "cnn3": (3, 16, 16),
    "resnet10": (3, 16, 16),
    "resnet18": (3, 16, 16),
    "resnet20": (3, 16, 16),
    "resnet8": (3, 16, 16),
    "mlp": (2, 1, 1),
}
#: `lstm` reads tokens: tests/trainables/models/test_lstm.py.


def test_every_registered_model_is_covered_here() -> None:
    assert models.names() == sorted([*SHAPES, "lstm"])


@pytest.mark.parametrize(
    ("name", "rate", "expected"),
    [
        # Counted by hand: conv (in·9+1)·out, BatchNorm 2·out, linear (in+1)·10 -> 1.56 M and 6.7 k.
        ("cnn", 1.0, sum((i * 9 + 1) * o + 2 * o for i, o in [(3, 64), (64, 128), (128, 256), (256, 512)]) + 5130),
        ("cnn", 1 / 16, sum((i * 9 + 1) * o + 2 * o for i, o in [(3, 4), (4, 8), (8, 16), (16, 32)]) + 330),
        ("lenet5", 1.0, (3 * 25 + 1) * 6 + (6 * 25 + 1) * 16 + (16 * 25 + 1) * 120 + 121 * 84 + 85 * 10),
        # p = 400 and 128 on 32x32.
        ("lenet5_paper", 1.0, (3 * 25 + 1) * 6 + (6 * 25 + 1) * 16 + 401 * 120 + 121 * 84 + 85 * 10),
        ("lenet_code", 1.0, (3 * 9 + 1) * 16 + 2 * 16 + (16 * 9 + 1) * 32 + 2 * 32 + 129 * 128 + 129 * 10),
        ("lenet_code_64", 1.0, (3 * 9 + 1) * 16 + 2 * 16 + (16 * 9 + 1) * 32 + 2 * 32 + 129 * 64 + 65 * 10),
        ("cnn2", 1.0, (3 * 25 + 1) * 32 + (32 * 25 + 1) * 64 + (1600 + 1) * 512 + 513 * 10),
        ("cnn3", 1.0, (3 * 9 + 1) * 32 + (32 * 9 + 1) * 64 + (64 * 9 + 1) * 128 + (128 * 16 + 1) * 512 + 513 * 10),
        ("mlp", 1.0, (3072 + 1) * 64 + 65 * 64 + 65 * 10),
        # ResNet-18 less its four identity blocks of two 3x3 convolutions and two BatchNorms.
        ("resnet10", 1.0, 11_172_170 - sum(2 * 9 * w * w + 4 * w for w in (64, 128, 256, 512))),
        # ResNet-18 of 3x3 basic blocks with pre-activation; the usual CIFAR variant has 11.17 M parameters.
        ("resnet18", 1.0, 11_172_170),
        # One more 128-channel block: two 3x3 convolutions and two BatchNorms.
        ("resnet20", 1.0, 11_172_170 + 2 * 9 * 128 * 128 + 2 * 2 * 128),
        # 3x3 convolutions without bias, 1x1 shortcuts, weight and bias per normalised channel, a linear layer.
        (
            "resnet8",
            1.0,
            9 * (3 * 64 + 2 * 64 * 64 + 64 * 128 + 128 * 128 + 128 * 256 + 256 * 256)
            + 64 * 128
            + 128 * 256
            + 2 * (3 * 64 + 3 * 128 + 3 * 256)
            + 257 * 10,
        ),
    ],
)
def test_parameter_counts(name: str, rate: float, expected: int) -> None:
    count = sum(p.numel() for p in models.build(name, (3, 32, 32), 10, rate).parameters())
    assert count == expected
    if name == "cnn":
        assert (round(count / 1e6, 2), round(count / 1e3, 1))[rate < 1] == (1.56, 6.7)[rate < 1]


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("rate", [1.0, 0.5, 0.3, 1 / 16])
def test_axes_describe_every_dimension(name: str, rate: float) -> None:
    shape = SHAPES[name]
    full, cut = models.build(name, shape, 10), models.build(name, shape, 10, rate)
    assert cut.group_sizes == full.group_sizes
    assert cut.axes == full.axes
    wide, narrow = dict(full.named_parameters()), dict(cut.named_parameters())
    assert list(cut.axes) == list(narrow) == list(wide)
    assert not list(cut.buffers())
    for key, axes in cut.axes.items():
        assert len(axes) == wide[key].dim() == narrow[key].dim()
        for axis, n, k in zip(axes, wide[key].shape, narrow[key].shape, strict=True):
            if axis is None:
                assert n == k
            else:
                assert n == full.group_sizes[axis.group] * axis.repeat
                assert k == math.ceil(round(full.group_sizes[axis.group] * rate, 9)) * axis.repeat
    assert {a.group for axes in cut.axes.values() for a in axes if a} == set(cut.group_sizes)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", SHAPES)
def test_a_sub_model_that_ignores_the_rest_computes_what_the_full_model_does(name: str) -> None:
    """Channels outside the index set are made dead in the full model (their outgoing weights are zero); the sub-model
    cut by `axes` must then agree with it. Wrong groups, wrong repeats or a sum of unequal channels would show here."""
    shape, rate = SHAPES[name], 0.5
    full, cut = models.build(name, shape, 5), models.build(name, shape, 5, rate)
    with torch.no_grad():
        for p in full.parameters():
            p.add_(torch.rand(p.shape, generator=torch.Generator().manual_seed(p.numel())) * 0.1)
    random = torch.Generator().manual_seed(1)
    kept = {
        g: torch.randperm(n, generator=random)[: models.width(n, rate)].sort().values
        for g, n in full.group_sizes.items()
    }
    wide, narrow = full.state_dict(), {}
    for key, axes in full.axes.items():
        value = wide[key]
        for d, axis in enumerate(axes):
            if axis is not None:
                index = (kept[axis.group][:, None] * axis.repeat + torch.arange(axis.repeat)).flatten()
                if d == 1:
                    dead = torch.ones(wide[key].shape[1], dtype=torch.bool)
                    dead[index] = False
                    wide[key].transpose(0, 1)[dead] = 0.0
                value = value.index_select(d, index)
        narrow[key] = value
    full.load_state_dict(wide)
    cut.load_state_dict(narrow)
    x = torch.randn(6, *shape, generator=random)
    torch.testing.assert_close(cut(x), full(x), atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 28, 28), (3, 64, 64), (1, 20, 12)])
def test_shapes_features_and_head(name: str, shape: tuple[int, int, int]) -> None:
    model = models.build(name, shape, 7, 1 / 16)
    x = torch.randn(3, *shape)
    features = model.features(x)
    assert features.shape == (3, model.feature_width)
    assert model(x).shape == (3, 7)
    assert torch.equal(model(x), model.head(features))
    assert any(k.startswith("head.") for k in model.axes)


def test_lenet5_on_28_has_120_features() -> None:
    assert models.build("lenet5", (1, 28, 28), 10).feature_width == 120


#: What follows the convolutions, of which each is followed by ReLU and pooling.
AFTER_POOLING: dict[str, Callable[[Any, torch.Tensor], torch.Tensor]] = {
    "lenet5": lambda model, z: F.relu(model.conv3(z)).flatten(1),
    "lenet5_paper": lambda model, z: z.flatten(1),
    "cnn2": lambda model, z: F.relu(model.fc(z.flatten(1))),
    "cnn3": lambda model, z: F.relu(model.fc(z.flatten(1))),
    "mlp": lambda model, z: F.relu(model.fc2(F.relu(model.fc1(z.flatten(1))))),
}


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", AFTER_POOLING)
def test_layer_by_layer(name: str) -> None:
    """`lenet5` on 28 × 28 is the same as a first layer with a padding of two."""
    model: Any = models.build(name, SHAPES[name], 10)
    x = torch.randn(2, *SHAPES[name])
    z = F.pad(x, (2, 2, 2, 2)) if name == "lenet5" else x
    for conv in [] if name == "mlp" else getattr(model, "convs", None) or (model.conv1, model.conv2):
        z = F.max_pool2d(F.relu(conv(z)), 2)
    torch.testing.assert_close(model.features(x), AFTER_POOLING[name](model, z), atol=1e-12, rtol=1e-9)


@pytest.mark.parametrize(
    ("name", "shape", "width"),
    [
        ("lenet_code", (1, 28, 28), 128),
        ("lenet_code", (3, 32, 32), 128),
        ("lenet_code", (1, 8, 8), 128),
        ("lenet_code_64", (3, 64, 64), 512),
        ("lenet5_paper", (1, 28, 28), 256),
        ("lenet5_paper", (3, 32, 32), 400),
        ("lenet5_paper", (1, 8, 8), 256),
    ],
)
def test_the_backbones_of_fedmdcg_have_the_papers_feature_widths(
    name: str, shape: tuple[int, int, int], width: int
) -> None:
    """p = 128 for 28×28×1 and 32×32×3 alike in the code; 8×8 digits keep the same p."""
    assert models.build(name, shape, 10).feature_width == width
    assert models.build(name, shape, 10).features(torch.randn(2, *shape)).shape == (2, width)


@pytest.mark.usefixtures("float64")
def test_lenet_code_layer_by_layer_with_relu_before_pooling() -> None:
    model = models.build("lenet_code", (3, 32, 32), 10)
    z = x = torch.randn(4, 3, 32, 32)
    for conv, norm in ((model.conv1, model.norm1), (model.conv2, model.norm2)):
        z = F.max_pool2d(F.relu(norm(F.conv2d(z, conv.weight, conv.bias, stride=2, padding=1))), 2)
    expected = F.linear(
        F.linear(z.flatten(1), model.head[0].weight, model.head[0].bias), model.head[1].weight, model.head[1].bias
    )
    torch.testing.assert_close(model(x), expected, atol=1e-12, rtol=1e-9)


@pytest.mark.parametrize(
    ("shape", "two", "three"),
    [((1, 28, 28), 1024, 1152), ((3, 32, 32), 1600, 2048), ((1, 8, 8), 256, 128), ((3, 64, 64), 10816, 8192)],
)
def test_the_clients_of_dhf_share_a_feature_width_of_512(shape: tuple[int, int, int], two: int, three: int) -> None:
    """0.58 M parameters on 1×28×28 and 0.88 M on 3×32×32; what differs is the flattened map before the linear layer."""
    shallow, deep, large = (models.build(name, shape, 10) for name in ("cnn2", "cnn3", "resnet10"))
    assert shallow.feature_width == deep.feature_width == large.feature_width == 512
    assert (shallow.fc.in_features, deep.fc.in_features) == (two, three)
    count = sum(p.numel() for p in shallow.parameters()) / 1e6
    assert round(count, 2) == {(1, 28, 28): 0.58, (3, 32, 32): 0.88}.get(shape, round(count, 2))


@pytest.mark.usefixtures("float64")
def test_cnn_layer_by_layer_with_relu_before_pooling() -> None:
    model = models.build("cnn", (3, 16, 16), 10, 1 / 16)
    z = x = torch.randn(4, 3, 16, 16)
    for conv, norm in zip(model.convs, model.norms, strict=True):
        z = conv(z)
        z = (z - z.mean((0, 2, 3), keepdim=True)) / (z.var((0, 2, 3), keepdim=True, unbiased=False) + norm.eps).sqrt()
        z = F.max_pool2d(F.relu(z), 2)
    torch.testing.assert_close(model.features(x), F.adaptive_avg_pool2d(z, 1).flatten(1), atol=1e-12, rtol=1e-9)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", SHAPES)
def test_scaler_multiplies_convolutions_by_one_over_r_in_training_only(name: str) -> None:
    """Of `mlp`, which has none, the linear layers before its head."""
    plain, scaled = (models.build(name, SHAPES[name], 10, 0.25, scaler=scaler) for scaler in (False, True))
    x = torch.randn(4, *SHAPES[name])
    assert torch.equal(scaled.eval()(x), plain.eval()(x))
    assert (scaled.train()(x) - plain.train()(x)).abs().max() > 1e-6
    with torch.no_grad():
        for place, layer in plain.named_modules():
            if isinstance(layer, nn.Linear if name == "mlp" else nn.Conv2d) and not place.startswith("head"):
                for tensor in layer.parameters():
                    tensor.mul_(4)
    found, expected = ((model.features(x), model(x)) for model in (scaled, plain))
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-9)


@pytest.mark.usefixtures("float64")
def test_resnet8_layer_by_layer() -> None:
    """Post-activation blocks; every channel of every sample is normalised over its own map, so samples do not see each
    other."""
    model = models.build("resnet8", (3, 8, 8), 10, 1 / 16)
    initialise(model, torch.Generator().manual_seed(1))
    x = torch.randn(4, 3, 8, 8)

    def normed(z: torch.Tensor) -> torch.Tensor:
        return (z - z.mean((2, 3), keepdim=True)) / (z.var((2, 3), keepdim=True, unbiased=False) + 1e-5).sqrt()

    weights = dict(model.named_parameters())
    z = F.relu(normed(F.conv2d(x, weights["stem.weight"], padding=1)))
    for stage, stride in enumerate((1, 2, 2)):
        inner = F.relu(normed(F.conv2d(z, weights[f"stages.{stage}.conv1.weight"], stride=stride, padding=1)))
        inner = normed(F.conv2d(inner, weights[f"stages.{stage}.conv2.weight"], padding=1))
        z = F.relu(
            inner
            + (z if stride == 1 else normed(F.conv2d(z, weights[f"stages.{stage}.shortcut.weight"], stride=stride)))
        )
    torch.testing.assert_close(model.features(x), z.mean((2, 3)), atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(model(x)[:1], model(x[:1]), atol=1e-9, rtol=1e-9)


def test_resnet8_draws_convolutions_from_he() -> None:
    weight = models.build("resnet8", (3, 32, 32), 10).get_parameter("stages.2.conv2.weight")
    assert weight.std().item() == pytest.approx(math.sqrt(2 / (9 * 256)), rel=0.01)
    assert weight.mean().item() == pytest.approx(0.0, abs=1e-4)


@pytest.mark.parametrize("name", SHAPES)
def test_initialise_gives_the_same_bits_and_leaves_the_global_generator_alone(name: str) -> None:
    before = torch.get_rng_state()
    a, b, c = (models.build(name, SHAPES[name], 10, 0.25) for _ in range(3))
    built = [p.clone() for p in a.parameters()]
    initialise(a, torch.Generator().manual_seed(7))
    initialise(b, torch.Generator().manual_seed(7))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
    assert all(torch.equal(x, y) for x, y in zip(built, c.parameters(), strict=True))
    # Normalisation weights and biases are constants, everything else is drawn.
    drawn = [k for k in a.axes if "norm" not in k]
    assert len(drawn) >= 6
    assert not any(torch.equal(a.get_parameter(k), c.get_parameter(k)) for k in drawn)


def test_initialise_follows_pytorch_default_laws() -> None:
    model = models.build("cnn", (3, 32, 32), 10)
    weight = model.convs[2].weight
    bound = 1 / math.sqrt(128 * 9)
    assert weight.abs().max() <= bound
    assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.01)
    assert torch.equal(model.norms[0].weight, torch.ones(64))
    default = nn.Conv2d(128, 256, 3)
    assert weight.std().item() == pytest.approx(default.weight.std().item(), rel=0.02)


def test_initialise_refuses_what_it_does_not_know() -> None:
    with pytest.raises(TypeError, match="PReLU"):
        initialise(nn.Sequential(nn.PReLU()), torch.Generator())


def test_batchnorm_uses_batch_statistics_in_evaluation_and_takes_a_single_value() -> None:
    norm = BatchNorm(2)
    nn.init.constant_(norm.bias, 0.5)
    x = torch.randn(8, 2, 3, 3)
    assert torch.equal(norm.eval()(x), norm.train()(x))
    torch.testing.assert_close(norm(torch.randn(1, 2, 1, 1)), torch.full((1, 2, 1, 1), 0.5))


@pytest.mark.parametrize(
    ("size", "rate", "expected"),
    [(64, 1 / 16, 4), (6, 0.5, 3), (6, 1 / 16, 1), (84, 0.25, 21), (30, 0.1, 3), (16, 1 / 3, 6)],
)
def test_width_is_the_ceiling(size: int, rate: float, expected: int) -> None:
    assert models.width(size, rate) == expected


def test_user_errors() -> None:
    with pytest.raises(UserError, match=re.escape("Unknown model 'lenet'. Did you mean 'lenet5'?")):
        models.build("lenet", (1, 8, 8), 10)
    with pytest.raises(UserError, match="rate must be a number above 0 and at most 1, got 0"):
        models.build("cnn", (1, 8, 8), 10, 0.0)
