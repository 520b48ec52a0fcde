"""FedAvg with running statistics against a plain loop of PyTorch's own layers; sub-models, the attack, q-FFL's step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.contracts.test_methods import CPU, simulate, values_for
from trainables.building_blocks import submodels
from trainables.local import draw_batches
from trainables.methods import qffl
from trainables.models import is_statistic
from trainables.params import take
from trainables.simulation.rounds import Simulation

RUNNING = {"batch_norm": "running", "model": "lenet_code"}
#: Layers of `lenet_code` as they stand in the plain network.
PLACES = {"conv1": 0, "norm1": 1, "conv2": 4, "norm2": 5, "head.0": 9, "head.1": 10}


def plain_lenet(classes: int) -> nn.Sequential:
    """`lenet_code` on 8×8 images, of PyTorch's layers alone."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, 1, padding=1), nn.BatchNorm2d(16), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, 1, padding=1), nn.BatchNorm2d(32), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(128, 128), nn.Linear(128, classes)),
    )


def plain_name(name: str) -> str:
    layer, _, tensor = name.rpartition(".")
    return f"{PLACES[layer]}.{tensor}"


@pytest.mark.usefixtures("float64")
def test_two_rounds_are_those_of_a_plain_loop(toy: Path) -> None:
    """Local SGD, the average of weights and statistics weighted by n_i, and what is measured with the result."""
    more = RUNNING | {"local_steps": 3, "momentum": 0.5, "weight_decay": 0.01}
    s = Simulation("fedavg", values_for("fedavg", toy, **more), 3, CPU)
    start = {plain_name(name): tensor.clone() for name, tensor in s.progress.state.model.items()}
    assert sum(is_statistic(name) for name in s.progress.state.model) == 4
    for t in (1, 2):
        trained = []
        for i, data in enumerate(s.data.clients):
            network = plain_lenet(s.fed.classes)
            network.load_state_dict(start, strict=False)
            optimiser = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.5, weight_decay=0.01)
            for chosen in draw_batches(s.config, len(data), 1.0, s.fed.rng.child("round", t, "client", i)):
                x, y = data.batch(chosen)
                optimiser.zero_grad()
                F.cross_entropy(network.train()(x), y).backward()
                optimiser.step()
            trained.append(network.state_dict())
        n = [len(data) for data in s.data.clients]
        start = {name: sum(k * w[name] for k, w in zip(n, trained, strict=True)) / sum(n) for name in start}
        row = s.run_round()
        for name, tensor in s.progress.state.model.items():
            np.testing.assert_allclose(tensor.numpy(), start[plain_name(name)].numpy(), rtol=1e-9, atol=1e-12)
        network = plain_lenet(s.fed.classes)
        network.load_state_dict(start, strict=False)
        network.eval()
        with torch.no_grad():
            logits = network(s.data.batch(s.data.test, torch.arange(len(s.data.test.y))))
        assert row["global_loss"] == pytest.approx(float(F.cross_entropy(logits, s.data.test.y)), rel=1e-9)
        assert row["global_accuracy"] == float((logits.argmax(dim=1) == s.data.test.y).double().mean())
        network.train()
        with torch.no_grad():  # the statistics of the batch are another reading
            other = network(s.data.batch(s.data.test, torch.arange(len(s.data.test.y))))
        assert abs(row["global_loss"] - float(F.cross_entropy(other, s.data.test.y))) > 1e-3
        assert all(float(start[f"{place}.running_mean"].abs().max()) > 0 for place in (1, 5))


@pytest.mark.usefixtures("float64")
def test_a_sub_models_statistics_are_cut_and_put_back_with_their_channels(toy: Path) -> None:
    values = values_for("fedrolex", toy, rho=5, batch_norm="running", model="lenet_code", clients=4)
    s = Simulation("fedrolex", values, 3, CPU)
    full = {
        name: torch.arange(float(t.numel())).view(t.shape) + 1 if is_statistic(name) else t
        for name, t in s.progress.state.model.items()
    }
    narrow, narrower = torch.tensor([1, 3, 4, 15]), torch.tensor([3, 7])
    parts = []
    for channels, weight, value in ((narrow, 30.0, 100.0), (narrower, 10.0, 200.0)):
        chosen = {g: torch.arange(n) for g, n in s.fed.network().group_sizes.items()} | {"conv1": channels}
        cut = submodels.extract(s.fed, full, chosen)
        for statistic in ("running_mean", "running_var"):
            assert cut[f"norm1.{statistic}"].tolist() == [float(c) + 1 for c in channels]
            assert torch.equal(cut[f"norm2.{statistic}"], full[f"norm2.{statistic}"])
        trained = cut | {"norm1.running_var": torch.full((len(channels),), value)}
        parts.append(submodels.Part(chosen, trained, weight))
    merged = submodels.merge(s.fed, full, parts)
    expected = [float(c) + 1 for c in range(16)]
    for c, value in ((1, 100.0), (4, 100.0), (15, 100.0), (7, 200.0), (3, (30 * 100 + 10 * 200) / 40)):
        expected[c] = value
    np.testing.assert_allclose(merged["norm1.running_var"].numpy(), expected, rtol=1e-12)
    assert torch.equal(merged["norm1.running_mean"], full["norm1.running_mean"])


def test_a_narrow_client_is_measured_and_taught_from_with_the_scaler_it_trained_with(toy: Path) -> None:
    s, _ = simulate("heterofl", toy, 1, rho=5, batch_norm="running")
    for client, width in enumerate(s.fed.widths):
        module = s.method.client_network(s.config, s.fed, client)
        assert module.eval().scale == 1 / width  # type: ignore[union-attr, operator]
    assert s.method.global_network(s.config, s.fed).eval().scale == 1.0  # type: ignore[union-attr, operator]
    without, _ = simulate("heterofl", toy, 1, rho=5)
    assert without.method.client_network(without.config, without.fed, 3).eval().scale == 1.0  # type: ignore[union-attr, operator]


def test_statistics_do_not_count_in_q_ffls_distance_and_move_as_the_weights() -> None:
    old = {"norm.weight": torch.tensor([1.0]), "norm.running_var": torch.tensor([1.0])}
    new = {"norm.weight": torch.tensor([3.0]), "norm.running_var": torch.tensor([101.0])}
    assert float(qffl._squared_distance(old, new)) == 4.0
    # One client, F = 1, q = 2, η = 0.5: Δ = (w - w₁)/η, h = q ‖Δ‖² + 1/η = 2·16 + 2 = 34; step Δ/h = -4/34.
    moved = qffl.fair_step(2.0, 0.5, old, [new], [1.0 - qffl.EPSILON])
    assert float(moved["norm.weight"]) == pytest.approx(1 + 4 / 34, rel=1e-6)
    assert float(moved["norm.running_var"]) == pytest.approx(1 + 200 / 34, rel=1e-6)
    assert take(nn.Linear(1, 1)).keys() == {"weight", "bias"}
