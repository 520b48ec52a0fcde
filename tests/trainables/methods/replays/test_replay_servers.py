"""FedAvgM, FedAdam, FedYogi and FedNova, three rounds: FedAvg's clients, and the step that the server makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.trainables.methods.replays.actual import assert_close, assert_equal, assert_step, slowed, unpacked, world
from tests.trainables.methods.replays.plain import Params, Sgd, drawn_batches, sgd_steps
from tests.trainables.methods.replays.test_replay_averages import COHORTS, assert_uploads, by_size, plain_loss


def test_fedavgm(toy: Path) -> None:
    fedavgm = world("fedavgm", toy, server_momentum=0.7, server_lr=0.4)
    model = dict(fedavgm.start.model)
    velocity = {name: torch.zeros_like(value) for name, value in model.items()}
    for played in fedavgm.play(COHORTS):
        before, mean = model, by_size(fedavgm, assert_uploads(fedavgm, played, model, plain_loss))
        velocity = {name: 0.7 * velocity[name] + before[name] - mean[name] for name in model}
        model = {name: before[name] - 0.4 * velocity[name] for name in model}
        assert_step(played.after.model, model, before, f"model after round {played.number}")
        assert_equal(played.after.velocity, velocity, f"velocity after round {played.number}")


@pytest.mark.parametrize("name", ["fedadam", "fedyogi"])
def test_adaptive_servers(name: str, toy: Path) -> None:
    """β₂ far from 1 and τ about as large as a step, so that both sides of Yogi's sign occur."""
    adaptive = world(name, toy, server_lr=0.02, beta1=0.6, beta2=0.7, tau=0.01)
    model = dict(adaptive.start.model)
    m = {key: torch.zeros_like(value) for key, value in model.items()}
    v = {key: torch.full_like(value, 0.01**2) for key, value in model.items()}
    grew: list[bool] = []
    for played in adaptive.play(COHORTS):
        before, mean = model, by_size(adaptive, assert_uploads(adaptive, played, model, plain_loss))
        for key in model:
            delta = mean[key] - before[key]
            m[key] = 0.6 * m[key] + 0.4 * delta
            if name == "fedadam":
                v[key] = 0.7 * v[key] + 0.3 * delta**2
            else:
                grew += (delta**2 > v[key]).flatten().tolist()
                v[key] = v[key] + torch.where(delta**2 > v[key], 0.3, -0.3) * delta**2
        model = {key: before[key] + 0.02 * m[key] / (torch.sqrt(v[key]) + 0.01) for key in model}
        assert_step(played.after.model, model, before, f"model after round {played.number}")
        assert_equal(played.after.second, v, f"v after round {played.number}", reach=1e-4)
    assert name == "fedadam" or {False, True} == set(grew)


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_fednova(momentum: float, toy: Path) -> None:
    """The step as the paper prints it; a_i are found by counting in how many velocities each gradient is."""
    fednova = slowed(world("fednova", toy, local_epochs=2, momentum=momentum), 3, 0.4)
    c, model, seen = fednova.config, dict(fednova.start.model), set[int]()
    for played in fednova.play(COHORTS):
        before = model
        trained: dict[int, Params] = {}
        work: dict[int, float] = {}
        for i, result in played.results.items():
            data, rng = fednova.clients[i], fednova.client_rng(played.number, i)
            drawn = drawn_batches(data, 2 * (len(data.y) // c.batch_size), c.batch_size, rng.torch("batches"))
            trained[i], losses = sgd_steps(before, data, drawn, plain_loss, Sgd(c.lr, momentum, c.weight_decay))
            velocity = work[i] = 0.0
            for _ in drawn:
                velocity = momentum * velocity + 1
                work[i] += velocity
            assert_step(unpacked("model", result.upload), trained[i], before, f"upload of {i}")
            assert result.loss is not None
            assert_close(result.loss, sum(losses) / len(losses), f"loss of {i}")
            seen.add(len(drawn))
        total = sum(len(fednova.clients[i].y) for i in trained)
        share = {i: len(fednova.clients[i].y) / total for i in trained}
        length = sum(share[i] * work[i] for i in trained)
        model = {
            name: before[name]
            - length * sum(share[i] * (before[name] - own[name]) / work[i] for i, own in trained.items())
            for name in before
        }
        assert_step(played.after.model, model, before, f"model after round {played.number}")
    assert len(seen) > 2
