"""The generator of features: its layers by hand, batches of one, how it is drawn."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tests.exact import assert_as_exact
from trainables.generators.feature import FeatureGenerator, initialise

DTYPES = (torch.float32, torch.float64)


def generator() -> FeatureGenerator:
    """Five features of three classes from four numbers of noise; every parameter and statistic of its own."""
    made = FeatureGenerator(5, 3, 4, hidden=(8, 6))
    random = torch.Generator().manual_seed(1)
    for part in made.modules():
        if isinstance(part, nn.BatchNorm1d):
            for tensor in (part.weight, part.bias, part.running_mean):
                tensor.data.normal_(generator=random)
            part.running_var.uniform_(0.5, 2.0, generator=random)
    return made


def by_hand(made: FeatureGenerator, z: Tensor, y: Tensor, dtype: torch.dtype, *, by_batch: bool) -> Tensor:
    """ReLU(norm(W x + b)) twice, and a linear layer."""
    x = torch.cat([z, torch.eye(made.classes)[y]], dim=1).to(dtype)
    tensors = {name: tensor.to(dtype) for name, tensor in made.state_dict().items()}
    for linear, norm in ((0, 1), (3, 4)):
        x = x @ tensors[f"layers.{linear}.weight"].T + tensors[f"layers.{linear}.bias"]
        mean = x.mean(0) if by_batch else tensors[f"layers.{norm}.running_mean"]
        var = (x - mean).square().mean(0) if by_batch else tensors[f"layers.{norm}.running_var"]
        x = (x - mean) / (var + 1e-5).sqrt() * tensors[f"layers.{norm}.weight"] + tensors[f"layers.{norm}.bias"]
        x = x.clamp(min=0)
    return x @ tensors["layers.6.weight"].T + tensors["layers.6.bias"]


@pytest.mark.numeric
def test_features_are_those_of_the_layers_by_hand() -> None:
    z, y = torch.randn(7, 4, generator=torch.Generator().manual_seed(2)), torch.tensor([0, 2, 1, 1, 0, 2, 2])
    for training in (False, True):
        made = generator().train(training)
        assert_as_exact(made(z, y), *(by_hand(made, z, y, dtype, by_batch=training) for dtype in DTYPES))


@pytest.mark.numeric
def test_one_sample_in_training_is_normalised_by_the_running_statistics_and_leaves_them() -> None:
    made = generator().train()
    before = {name: tensor.clone() for name, tensor in made.state_dict().items()}
    z, y = torch.randn(1, 4, generator=torch.Generator().manual_seed(3)), torch.tensor([1])
    assert_as_exact(made(z, y), *(by_hand(made, z, y, dtype, by_batch=False) for dtype in DTYPES))
    assert all(torch.equal(tensor, before[name]) for name, tensor in made.state_dict().items())


def test_how_it_is_drawn() -> None:
    before = torch.get_rng_state()
    a, b = FeatureGenerator(300, 10, 90, hidden=(400,)), FeatureGenerator(300, 10, 90, hidden=(400,))
    initialise(b, torch.Generator().manual_seed(0))
    assert all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))
    for part in a.modules():
        if isinstance(part, nn.BatchNorm1d):
            part.weight.data.fill_(3.0)
            part.bias.data.fill_(3.0)
            part.running_mean.fill_(3.0)
    initialise(a, torch.Generator().manual_seed(7))
    assert torch.equal(torch.get_rng_state(), before)
    for part in a.modules():
        if isinstance(part, nn.Linear):
            bound = 1 / part.in_features**0.5
            for tensor in (part.weight, part.bias):
                assert 0.95 * bound < tensor.max() <= bound and -bound <= tensor.min() < -0.95 * bound
                assert abs(tensor.mean()) < 0.15 * bound
            assert not torch.equal(part.weight, b.get_submodule("layers.0").weight)
        elif isinstance(part, nn.BatchNorm1d):
            assert part.weight.eq(1).all() and part.bias.eq(0).all() and part.running_mean.eq(0).all()
