"""What holds where a caller says nothing."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from search_spaces.parameter import parameters
from tests.contracts.test_methods import simulate
from tests.trainables.building_blocks.test_losses import random
from trainables.building_blocks.losses import kd_kl, kl_rows
from trainables.building_blocks.mixed_architectures import MixedArchitectures
from trainables.building_blocks.mutual_pair import both
from trainables.federation import FederationConfig
from trainables.generators.feature import FeatureGenerator


def test_a_divergence_has_the_temperature_one() -> None:
    one, other = random(6, 4), random(6, 4) * 2
    assert torch.equal(kl_rows(one, other), kl_rows(one, other, 1.0))
    assert not torch.equal(kl_rows(one, other), kl_rows(one, other, 2.0))
    assert torch.equal(kd_kl(one, other), kd_kl(one, other, 1.0))
    assert not torch.equal(kd_kl(one, other), kd_kl(one, other, 2.0))


def test_two_losses_count_alike_in_the_gradient() -> None:
    own, other = torch.tensor(2.0, requires_grad=True), torch.tensor(5.0, requires_grad=True)
    loss = both(own, other)
    loss.backward()
    assert (float(loss.detach()), float(own.grad or 0), float(other.grad or 0)) == (2.0, 1.0, 1.0)


def test_half_of_the_clients_are_deep_and_the_data_are_a_condition() -> None:
    assert MixedArchitectures().nu == 0.5
    dataset = parameters(FederationConfig)["dataset"]
    assert dataset.condition and dataset.default == "digits"


def test_a_generator_of_features_has_layers_of_512_and_256() -> None:
    layers = [m for m in FeatureGenerator(32, 10, 8).modules() if isinstance(m, nn.Linear)]
    assert [layer.out_features for layer in layers] == [512, 256, 32]


def test_a_federations_network_has_no_scaler_and_is_not_shown(toy: Path) -> None:
    s, _ = simulate("fedavg", toy, 1)
    assert s.fed.network(0.5).factor == s.fed.built(s.fed.model, 0.5).factor == 1.0
    assert s.fed.network(0.5, scaler=True).factor == s.fed.built(s.fed.model, 0.5, scaler=True).factor == 2.0
    assert "_networks" not in repr(s.fed)
