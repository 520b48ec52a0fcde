"""FedAMP, FedPHP and FedFomo: running statistics, who is chosen, and what is held out."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.contracts.test_methods import CPU, same, simulate, values_for
from tests.trainables.building_blocks.test_losses import random, softmax
from trainables.local import plain
from trainables.methods import fedamp, fedfomo, fedphp
from trainables.params import unpack
from trainables.rng import Rng
from trainables.simulation.rounds import Simulation
from trainables.wire import Params


def fresh(name: str, toy: Path, **more: Any) -> Simulation:
    return Simulation(name, values_for(name, toy, **more), 3, CPU)


def some_models(count: int) -> list[Params]:
    return [{"a.weight": random(3, 4, seed=k), "a.bias": random(5, 1, seed=10 + k)[:, 0]} for k in range(count)]


def flat(model: Params) -> np.ndarray:
    return np.concatenate([t.numpy().ravel() for t in model.values()])


# -- FedAMP ------------------------------------------------------------------------------------------------------------


def test_running_statistics_are_mixed_but_do_not_count_in_distances() -> None:
    base = some_models(2)
    with_statistics = [m | {"a.running_mean": 100.0 * random(3, 1, seed=20 + k)[:, 0]} for k, m in enumerate(base)]
    assert torch.equal(fedamp.squared_distances(base), fedamp.squared_distances(with_statistics))
    w = np.stack([flat(m) for m in base])
    expected = ((w[:, None] - w[None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(fedamp.squared_distances(base).numpy(), expected, rtol=1e-12)


# -- FedPHP ------------------------------------------------------------------------------------------------------------


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


# -- FedFomo -----------------------------------------------------------------------------------------------------------


def test_a_model_moves_towards_those_that_serve_better() -> None:
    own, a, b, c = some_models(4)
    served = torch.tensor([0.3, -2.0, 0.1], dtype=torch.float64)
    shares = fedfomo.weights(served)
    np.testing.assert_allclose(shares.numpy(), [0.75, 0.0, 0.25], rtol=1e-12)
    w = flat(own)
    expected = w + 0.75 * (flat(a) - w) + 0.25 * (flat(c) - w)
    np.testing.assert_allclose(flat(fedfomo.moved(own, [a, b, c], shares)), expected, rtol=1e-12)
    nothing = fedfomo.weights(torch.tensor([-1.0, 0.0], dtype=torch.float64))
    assert nothing.tolist() == [0.0, 0.0] and same(fedfomo.moved(own, [a, b], nothing), own)


@pytest.mark.parametrize(("samples", "ratio", "held"), [(2, 0.2, 1), (2, 0.5, 1), (3, 0.2, 1), (9, 0.5, 4)])
def test_at_least_one_sample_is_held_out_and_one_is_trained_on(
    samples: int, ratio: float, held: int, toy: Path
) -> None:
    s = fresh("fedfomo", toy, val_ratio=ratio)
    data = replace(s.data.clients[0], indices=torch.arange(samples), y=s.data.clients[0].y[:samples])
    training, validation = fedfomo.split(s.config, s.fed, data)
    assert (len(training), len(validation)) == (samples - held, held)


def test_without_a_validation_share_a_client_judges_by_what_it_trains_on(toy: Path) -> None:
    s = fresh("fedfomo", toy, val_ratio=0.0)
    training, validation = fedfomo.split(s.config, s.fed, s.data.clients[0])
    assert training is validation is s.data.clients[0]


def test_a_client_with_one_sample_judges_by_what_it_trains_on(toy: Path) -> None:
    s = fresh("fedfomo", toy)
    data = replace(s.data.clients[0], indices=torch.arange(1), y=s.data.clients[0].y[:1])
    training, validation = fedfomo.split(s.config, s.fed, data)
    assert training is data and validation is data
    peer = {f"peer2/{name}": tensor for name, tensor in s.fed.initial_params("another").items()}
    job = fedfomo.job(s.config, s.fed, peer, None, data, Rng(1))
    assert all(bool(tensor.isfinite().all()) for tensor in job.start.values())


def test_the_loss_of_a_model_is_that_of_its_evaluation_mode(toy: Path) -> None:
    """With running statistics every image is judged by itself, whatever mode the module was in."""
    s, _ = simulate("fedfomo", toy, 2, batch_norm="running")
    params, data = s.progress.state.models[1], s.data.clients[0]
    by_hand = s.fed.built(s.fed.model).eval()
    by_hand.load_state_dict(params)
    logits = torch.cat([by_hand(data.batch(k[None])[0]) for k in torch.arange(len(data))]).detach().double().numpy()
    expected = -np.log(softmax(logits)[np.arange(len(data)), data.y.numpy()]).mean()
    assert float(fedfomo.loss_of(s.fed.network().train(), params, data)) == pytest.approx(expected, rel=1e-4)


def test_distance_is_of_trained_parameters() -> None:
    own, peer = some_models(2)
    more = {"a.running_mean": torch.ones(3), "a.num_batches_tracked": torch.tensor(4)}
    apart = np.sqrt(((flat(peer) - flat(own)) ** 2).sum())
    others = {name: 7 * tensor for name, tensor in more.items()}
    assert fedfomo.distance(own | more, peer | others).item() == pytest.approx(apart, rel=1e-12)


def test_the_best_known_peers_are_chosen_and_others_at_random() -> None:
    affinity = {1: 0.5, 2: -1.0, 4: 3.0}
    best = [fedfomo.choose(2, 0.0, [1, 2, 3, 4, 5], affinity, Rng(seed)) for seed in range(20)]
    assert set(best) == {(1, 4)}
    third = {fedfomo.choose(3, 0.0, [1, 2, 3, 4, 5], affinity, Rng(seed)) for seed in range(40)}
    assert third == {(1, 3, 4), (1, 4, 5)}  # unknown ones are tied, and better than the worse one
    free = [fedfomo.choose(1, 1.0, [1, 2, 3, 4, 5], affinity, Rng(seed)) for seed in range(300)]
    counts = np.array([free.count((m,)) for m in (1, 2, 3, 4, 5)])
    assert counts.sum() == 300 and counts.min() > 35
    assert fedfomo.choose(9, 0.5, [2, 7], {}, Rng(0)) == (2, 7) and fedfomo.choose(0, 0.5, [2, 7], {}, Rng(0)) == ()


def test_chance_falls_from_round_to_round(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []
    monkeypatch.setattr(fedfomo, "choose", lambda places, chance, others, affinity, rng: seen.append(chance) or ())
    fed: Any = type("Fed", (), {"clients": 1})
    state = fedfomo.State(0, {}, {}, {})
    for _ in range(4):
        state = fedfomo.server(fedfomo.Config(epsilon=0.5, epsilon_decay=0.2), fed, state, [], Rng(0))
    assert seen == pytest.approx([0.5, 0.3, 0.1, 0.0])


def test_other_clients_models_cost_what_they_are(toy: Path) -> None:
    s = fresh("fedfomo", toy, peers=2, rounds=3)
    whole = 4 * sum(p.numel() for p in s.fed.network().parameters())
    first, second = s.run_round(), s.run_round()
    assert (first["bytes_down"], first["bytes_down_peers"], first["bytes_up_peers"]) == (0, 0, 0)
    assert (second["bytes_down"], second["bytes_down_peers"]) == (4 * 2 * whole, 4 * 2 * whole)
    assert (first["bytes_up"], second["bytes_up"]) == (4 * whole, 4 * (whole + 2 * 4))  # two affinities of 4 bytes


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
