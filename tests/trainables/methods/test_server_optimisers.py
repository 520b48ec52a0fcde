"""FedAvgM, FedAdam, FedYogi, FedNova: where they meet FedAvg, running statistics, and the work of FedNova's clients."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.contracts.test_executors import exact_round, wide
from tests.contracts.test_methods import same, simulate, values_for
from tests.exact import assert_as_exact
from tests.float64 import to_float64
from trainables.building_blocks import server_optimiser
from trainables.method import Upload
from trainables.params import average


def test_moments_start_at_zero_and_at_tau_squared_and_leave_statistics_out(toy: Path) -> None:
    s, _ = simulate("fedadam", toy, 0, tau=0.5, batch_norm="running")
    state = s.progress.state
    assert {bool((m == 0).all()) for m in state.first.values()} == {True}
    assert {float(v) for tensor in state.second.values() for v in tensor.flatten()} == {0.25}
    left = state.model.keys() - state.first.keys()
    assert left and all("running_" in name for name in left)


@pytest.mark.parametrize("name", ["fedavgm", "fedadam", "fedyogi", "fednova", "scaffold"])
def test_running_statistics_are_averaged_whatever_the_step(name: str, toy: Path) -> None:
    s, _ = simulate(name, toy, 0, batch_norm="running")
    state, rng = s.progress.state, s.fed.rng.child("round", 1)
    results = {
        i: s.method.client(s.config, s.fed, s.method.download(s.config, s.fed, state, i), None, data, rng.child(i))
        for i, data in enumerate(s.data.clients)
    }
    after = s.method.server(s.config, s.fed, state, [Upload(i, r.upload) for i, r in results.items()], rng)
    equal = name == "scaffold"
    mean = average((r.model or {}, 1.0 if equal else s.fed.sizes[i]) for i, r in results.items())
    found = {key: value for key, value in after.model.items() if "running_" in key}
    assert found and same(found, {key: mean[key] for key in found})


@pytest.mark.numeric
@pytest.mark.parametrize("name", ["fedadam", "fedyogi"])
def test_a_plain_adaptive_step_is_fedavgs_up_to_rounding(name: str, toy: Path) -> None:
    """β₁ = 0 takes Δ itself, β₂ = 1 leaves √v = τ, and η_s = 2τ divides it by what it is multiplied with."""
    values = {"server_lr": 0.5, "tau": 0.25, "beta1": 0.0, "beta2": 1.0}
    adaptive, plain = (simulate(n, toy, 1, **v)[0] for n, v in ((name, values), ("fedavg", {})))
    exact = wide("fedavg", values_for("fedavg", toy))
    exact.load(to_float64(simulate("fedavg", toy, 0)[0].save()))
    exact_round(exact)
    assert_as_exact(adaptive.global_model(), plain.global_model(), exact.global_model(), decided=False)


def test_towards_is_exact_at_one_and_moves_weights_only() -> None:
    old = {"w": torch.tensor([0.1, 0.7]), "n.running_mean": torch.tensor([5.0])}
    mean = {"w": torch.tensor([0.3, 1e-9]), "n.running_mean": torch.tensor([7.0])}
    assert same(server_optimiser.towards(old, mean, 1.0), mean)
    half = server_optimiser.towards(old, mean, 0.5)
    assert half["w"].tolist() == pytest.approx([0.2, 0.35]) and half["n.running_mean"].tolist() == [7.0]
