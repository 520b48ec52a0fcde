"""FedAMP and FedPHP: their equations against NumPy."""

from __future__ import annotations

import copy
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.contracts.test_methods import CPU, same, simulate, values_for
from tests.trainables.building_blocks.test_losses import random, softmax
from trainables.local import plain
from trainables.methods import fedamp, fedphp
from trainables.params import unpack
from trainables.rng import Rng
from trainables.simulation.rounds import Simulation
from trainables.wire import Params, Upload

FED: Any = None


def fresh(name: str, toy: Path, **more: Any) -> Simulation:
    return Simulation(name, values_for(name, toy, **more), 3, CPU)


def some_models(count: int) -> list[Params]:
    return [{"a.weight": random(3, 4, seed=k), "a.bias": random(5, 1, seed=10 + k)[:, 0]} for k in range(count)]


def flat(model: Params) -> np.ndarray:
    return np.concatenate([t.numpy().ravel() for t in model.values()])


# -- FedAMP ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.5, 500.0])
def test_a_cloud_model_is_the_attentive_mixture(alpha: float) -> None:
    """With a large α the weights of the others are scaled to sum to 1, and a client's own model has none."""
    models, sigma = some_models(3), 25.0
    uploads = [Upload(k, {f"model/{n}": t for n, t in m.items()}) for k, m in zip((0, 2, 5), models, strict=True)]
    state = fedamp.server(fedamp.Config(alpha=alpha, reach=sigma), FED, fedamp.State(0, {}), uploads, Rng(0))
    w = np.stack([flat(m) for m in models])
    for i, client in enumerate((0, 2, 5)):
        xi = np.array([alpha * np.exp(-((w[i] - w[j]) ** 2).sum() / sigma) / sigma for j in range(3)])
        xi[i] = 0
        xi = xi / max(1.0, xi.sum())
        assert np.isclose(xi.sum(), 1.0) == (alpha == 500.0)
        np.testing.assert_allclose(flat(state.clouds[client]), (1 - xi.sum()) * w[i] + xi @ w, rtol=1e-9)
    assert state.round == 1


def test_running_statistics_are_mixed_but_do_not_count_in_distances() -> None:
    base = some_models(2)
    with_statistics = [m | {"a.running_mean": 100.0 * random(3, 1, seed=20 + k)[:, 0]} for k, m in enumerate(base)]
    assert torch.equal(fedamp.squared_distances(base), fedamp.squared_distances(with_statistics))
    w = np.stack([flat(m) for m in base])
    expected = ((w[:, None] - w[None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(fedamp.squared_distances(base).numpy(), expected, rtol=1e-12)


# -- FedPHP ------------------------------------------------------------------------------------------------------------


def test_mmd_is_that_of_its_definition() -> None:
    a, b = 3.0 * random(6, 7), 3.0 * random(6, 7, seed=1)

    def kernel(x: np.ndarray, y: np.ndarray) -> float:
        return sum(float(np.exp(-((x - y) ** 2).sum() / (2 * s))) for s in (10, 15, 20, 50))

    x, y = a.numpy(), b.numpy()
    pairs = list(itertools.product(range(6), range(6)))
    expected = sum(kernel(x[j], x[k]) + kernel(y[j], y[k]) - 2 * kernel(x[j], y[k]) for j, k in pairs) / 36
    assert fedphp.mmd(a, b).item() == pytest.approx(expected, rel=1e-9)
    assert fedphp.mmd(a, a).item() == pytest.approx(0.0, abs=1e-12)


def test_momentum_grows_with_the_rounds_a_client_took_part_in(toy: Path) -> None:
    """Of 8 planned rounds with half of the clients a client is expected in 4."""
    s = fresh("fedphp", toy, mu=0.8, rounds=8, active_clients=2)
    found = [fedphp.momentum(s.config, s.fed, z) for z in (0, 1, 2, 4, 7)]
    assert found == pytest.approx([0.0, 0.2, 0.4, 0.8, 0.8])
    short = fresh("fedphp", toy, mu=0.8, rounds=1, active_clients=1)
    assert fedphp.momentum(short.config, short.fed, 1) == 0.8  # a quarter of a round counts as one


def test_the_private_model_is_asked_in_evaluation_mode_while_the_other_trains(toy: Path) -> None:
    """It has a module of its own, which judges every image by itself, by the statistics that it remembers."""
    s, _ = simulate("fedphp", toy, 2, transfer="kd", batch_norm="running", **{"lambda": 1.0})
    memory, (x, y) = s.progress.client_states[0].model, s.data.clients[0].batch(torch.arange(6))
    model = s.fed.network()
    model.load_state_dict(s.progress.state.model)
    loss = fedphp.objective(s.config, s.fed, memory)(model.train(), x, y)
    logits = copy.deepcopy(model).train()(x).detach()
    other = s.fed.built(s.fed.model).eval()
    other.load_state_dict(memory)
    target = torch.cat([other(x[k : k + 1]) for k in range(6)]).detach() / s.config.kd_temperature
    p, q = softmax(target.double().numpy()), softmax(logits.double().numpy())
    assert float(loss.detach()) == pytest.approx((p * (np.log(p) - np.log(q))).sum(axis=1).mean(), rel=1e-3)


# -- Jobs of which a part may have no weight ---------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [0.0, 1.0])
@pytest.mark.parametrize(
    ("name", "key"), [("fedamp", "lambda"), ("fedphp", "lambda"), ("moon", "mu"), ("perfedavg", "alpha")]
)
def test_without_its_own_term_a_clients_job_is_plain_training(name: str, key: str, weight: float, toy: Path) -> None:
    s, _ = simulate(name, toy, 1, **{key: weight})
    payload = s.method.download(s.config, s.fed, s.progress.state, 0)
    assert s.method.job is not None
    job = s.method.job(s.config, s.fed, payload, s.progress.client_states.get(0), s.data.clients[0], Rng(1))
    assert (job.objective is plain) is (weight == 0)
    assert job.module is s.fed.network() and same(dict(job.start), unpack("model", payload))
