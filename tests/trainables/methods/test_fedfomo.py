"""FedFomo: its equations against NumPy, who is chosen, and what is held out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.contracts.test_methods import same, simulate
from tests.trainables.building_blocks.test_losses import softmax
from tests.trainables.methods.test_model_methods import flat, fresh, some_models
from trainables.methods import fedfomo
from trainables.rng import Rng
from trainables.wire import Params


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
