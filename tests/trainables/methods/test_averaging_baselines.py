"""FedProx, FedGKD, q-FFL, MOON: stragglers, running statistics, frozen models, a large q."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.contracts.test_methods import same, simulate, values_for
from trainables.local import draw_batches
from trainables.methods import fedgkd, fedprox, qffl
from trainables.params import put, unpack
from trainables.rng import Rng
from trainables.simulation.rounds import Simulation

CPU = torch.device("cpu")


@pytest.mark.parametrize(("share", "steps"), [(1.0, 5), (0.5, 2), (0.3, 2), (0.2, 1), (0.01, 1)])
def test_a_straggler_makes_its_share_of_the_steps_and_at_least_one(share: float, steps: int) -> None:
    config = fedprox.Config(local_steps=5, batch_size=4)
    assert draw_batches(config, 10, share, Rng(0)).shape == (steps, 4)


def test_qffl_measures_without_moving_running_statistics(toy: Path) -> None:
    """F_k of the received model in evaluation mode, in which every sample is judged by itself."""
    s = Simulation("qffl", values_for("qffl", toy, batch_norm="running", q=1.0), 3, CPU)
    module, data = s.fed.network(), s.data.clients[0]
    put(module, s.progress.state.model)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    found = qffl.mean_loss(module, data, Rng(0))
    assert same(dict(module.state_dict()), before)
    module.eval()
    with torch.no_grad():
        losses = [
            F.cross_entropy(module(x), y).item() for x, y in (data.batch(i[None]) for i in torch.arange(len(data)))
        ]
    assert float(found) == pytest.approx(np.mean(losses), rel=1e-5)


def test_fedgkd_keeps_past_models_only_where_they_teach(toy: Path) -> None:
    kept = [len(simulate("fedgkd", toy, 3, gamma=gamma, buffer=2)[0].progress.state.past) for gamma in (0.0, 0.1)]
    assert kept == [0, 2]


def test_fedgkds_teachers_evaluate_with_their_running_statistics(toy: Path) -> None:
    s, _ = simulate("fedgkd", toy, 1, buffer=1, batch_norm="running")
    payload = s.method.download(s.config, s.fed, s.progress.state, 0)
    before = {key: tensor.clone() for key, tensor in payload.items()}
    (teacher,) = fedgkd.frozen_teachers(s.fed, payload)
    module = s.fed.network(role="by hand").eval()
    put(module, unpack("teacher0", payload))
    x, _ = s.data.clients[0].batch(torch.arange(5))
    assert torch.equal(teacher(x), module(x)) and same(payload, before)


def test_qffl_stays_finite_for_a_large_q_and_leans_to_the_worst_client() -> None:
    old, models = {"a": torch.zeros(2)}, [{"a": torch.tensor([1e-3, 0.0])}, {"a": torch.tensor([0.0, 1e-3])}]
    got = qffl.fair_step(100.0, 1.0, old, models, [1e5, 10.0])["a"]
    assert bool(torch.isfinite(got).all()) and float(got[0]) > 1e6 * float(got[1])


def test_moon_leaves_its_frozen_extractors_as_they_are(toy: Path) -> None:
    """Also with running statistics, which follow nothing in evaluation."""
    s, _ = simulate("moon", toy, 1, batch_norm="running")
    payload = s.method.download(s.config, s.fed, s.progress.state, 0)
    state, before = s.progress.client_states[0], {k: v.clone() for k, v in payload.items()}
    previous = {k: v.clone() for k, v in state.previous.items()}
    s.method.client(s.config, s.fed, payload, state, s.data.clients[0], s.fed.rng.child("x"))
    assert same(payload, before) and same(state.previous, previous)
