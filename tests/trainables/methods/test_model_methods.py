"""FedAMP, FedPHP and FedFomo: their equations against NumPy, what crosses the wire, and what is remembered."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.contracts.test_methods import CPU, same, simulate, values_for
from tests.trainables.building_blocks.test_losses import random
from trainables.methods import fedamp, fedfomo, fedphp
from trainables.params import count_bytes
from trainables.rng import Rng
from trainables.simulation.rounds import Simulation, choose_cohort
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


def test_attention_to_itself_alone_gives_every_client_its_own_model_back() -> None:
    models = some_models(3)
    uploads = [Upload(k, {f"model/{n}": t for n, t in m.items()}) for k, m in enumerate(models)]
    state = fedamp.server(fedamp.Config(reach=1e-6), FED, fedamp.State(0, {}), uploads, Rng(0))
    assert all(same(state.clouds[k], models[k]) for k in range(3))


def test_without_attention_a_client_is_held_near_its_own_last_model(toy: Path) -> None:
    """Local training with FedProx's term around where the round began: bit for bit as a client of FedProx trains."""
    s, _ = simulate("fedamp", toy, 1, reach=1e-6, alpha=2.0, **{"lambda": 0.6})
    prox = fresh("fedprox", toy, mu=0.3)
    own = dict(s.progress.state.clouds)
    _, ours = s.exchange()
    for i, cloud in own.items():
        prox.progress = type(prox.progress)(1, prox.method.State(cloud), {})
        rng = prox.fed.rng.child("round", 2, "client", i)
        payload = prox.method.download(prox.config, prox.fed, prox.progress.state, i)
        theirs = prox.method.client(prox.config, prox.fed, payload, None, prox.data.clients[i], rng)
        assert same(ours[i].model, theirs.model) and not same(ours[i].model, cloud)


def test_running_statistics_are_mixed_but_do_not_count_in_distances() -> None:
    base = some_models(2)
    with_statistics = [m | {"a.running_mean": 100.0 * random(3, 1, seed=20 + k)[:, 0]} for k, m in enumerate(base)]
    assert torch.equal(fedamp.squared_distances(base), fedamp.squared_distances(with_statistics))
    w = np.stack([flat(m) for m in base])
    expected = ((w[:, None] - w[None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(fedamp.squared_distances(base).numpy(), expected, rtol=1e-12)


def test_a_client_is_sent_its_cloud_model_and_nothing_before_it_has_one(toy: Path) -> None:
    s, rows = simulate("fedamp", toy, 1, active_clients=2, rounds=6)
    whole = 4 * sum(p.numel() for p in s.fed.network().parameters())
    assert (rows[0]["bytes_up"], rows[0]["bytes_down"]) == (2 * whole, 0)
    first = choose_cohort(s.settings, s.fed.rng, 1).clients
    assert set(s.progress.state.clouds) == set(first)
    now = choose_cohort(s.settings, s.fed.rng, 2).clients
    kept = {i: s.progress.state.clouds[i] for i in set(first) - set(now)}
    assert s.run_round()["bytes_down"] == whole * len(set(first) & set(now))
    assert kept and all(same(s.progress.state.clouds[i], cloud) for i, cloud in kept.items())


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


def test_the_private_model_follows_and_is_what_is_measured(toy: Path) -> None:
    s, _ = simulate("fedphp", toy, 1, mu=0.8)
    before = dict(s.progress.client_states)
    row, results = s.exchange()
    for i, result in results.items():
        mu = 0.8 * 1 / 4  # one of four planned rounds was before
        for name, tensor in result.others["shared"].items():
            expected = mu * before[i].model[name].double() + (1 - mu) * tensor.double()
            np.testing.assert_allclose(result.model[name].numpy(), expected.numpy(), atol=1e-6)
        assert same(result.model, result.client_state.model) and result.client_state.times == 2
        assert same(result.upload, {f"model/{n}": t for n, t in result.others["shared"].items()})
    assert {"shared_local_accuracy", "local_accuracy", "global_accuracy"} <= s._measured(row, results).keys()


def test_the_memory_begins_as_the_initial_model_and_is_the_trained_one_after_a_round(toy: Path) -> None:
    """In round 1 the loss is near the initial model's features, of which the trained one is not far."""
    (_, near), (_, free) = (fresh("fedphp", toy, **{"lambda": weight}).exchange() for weight in (0.7, 0.0))
    for i, result in near.items():
        assert same(result.model, result.others["shared"]) and not same(result.model, free[i].model)


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


@pytest.mark.usefixtures("float64")
def test_affinity_is_the_gain_per_distance_on_the_validation_share(toy: Path) -> None:
    s = fresh("fedfomo", toy, omega=1.0)
    _, validation = fedfomo.split(s.config, s.fed, s.data.clients[0])
    own, peer = s.fed.initial_params(), s.fed.initial_params("another")
    x, y = validation.batch(torch.arange(len(validation)))

    def loss(params: Params) -> float:
        s.fed.network().load_state_dict(params)
        logits = s.fed.network().eval()(x).detach().numpy()
        shifted = logits - logits.max(axis=1, keepdims=True)
        log_p = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        return float(-log_p[np.arange(len(y)), y.numpy()].mean())

    apart = np.sqrt(((flat(peer) - flat(own)) ** 2).sum())
    expected = (loss(own) - loss(peer)) / (apart + 1e-5)
    found = fedfomo.affinities(s.fed, own, [peer, own], validation)
    assert found[0].item() == pytest.approx(expected, rel=1e-9) and found[1].item() == 0.0


def test_the_validation_share_is_fixed_and_not_trained_on(toy: Path) -> None:
    s = fresh("fedfomo", toy, val_ratio=0.25, omega=1.0)
    for data in s.data.clients:
        training, validation = fedfomo.split(s.config, s.fed, data)
        kept, held = set(training.indices.tolist()), set(validation.indices.tolist())
        assert not kept & held and kept | held == set(data.indices.tolist())
        assert len(held) == max(1, round(0.25 * len(data)))
        assert torch.equal(fedfomo.split(s.config, s.fed, data)[1].indices, validation.indices)
        at = {int(p): int(c) for p, c in zip(data.indices, data.y, strict=True)}
        assert all(at[int(p)] == int(c) for p, c in zip(validation.indices, validation.y, strict=True))
        trained_on = fedfomo.job(s.config, s.fed, {}, None, data, s.fed.rng).data
        assert trained_on is not None and torch.equal(trained_on.indices, training.indices)
    everything = fresh("fedfomo", toy, val_ratio=0.0, omega=1.0)
    training, validation = fedfomo.split(everything.config, everything.fed, data)
    assert training is data and validation is data


def test_other_clients_models_cost_what_they_are(toy: Path) -> None:
    s = fresh("fedfomo", toy, peers=2, rounds=3)
    whole = 4 * sum(p.numel() for p in s.fed.network().parameters())
    first, second = s.run_round(), s.run_round()
    assert (first["bytes_down"], first["bytes_down_peers"], first["bytes_up_peers"]) == (0, 0, 0)
    assert (second["bytes_down"], second["bytes_down_peers"]) == (4 * 2 * whole, 4 * 2 * whole)
    assert (first["bytes_up"], second["bytes_up"]) == (4 * whole, 4 * (whole + 2 * 4))  # two affinities of 4 bytes


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


def test_affinities_add_up() -> None:
    fed: Any = type("Fed", (), {"clients": 3})
    state = fedfomo.State(1, {}, {0: {1: 0.25, 2: 1.0}}, {})
    upload = Upload(0, {"model/a": torch.zeros(1), "affinity/1": torch.tensor(0.5)})
    after = fedfomo.server(fedfomo.Config(epsilon=0.0), fed, state, [upload], Rng(0))
    assert after.affinity == {0: {1: 0.75, 2: 1.0}} and set(after.models) == {0}
    assert after.chosen == {0: (), 1: (0,), 2: (0,)} and count_bytes(upload.payload) == 8
