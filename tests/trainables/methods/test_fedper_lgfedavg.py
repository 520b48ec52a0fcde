"""FedPer and LG-FedAvg: what crosses the wire, what stays, and how the shared part is averaged; Local Training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.contracts.test_methods import same, simulate
from trainables.params import count_bytes
from trainables.simulation.rounds import choose_cohort
from trainables.wire import Upload

SHARED = {"fedper": False, "lgfedavg": True}


def is_head(name: str) -> bool:
    return name.removeprefix("model/").startswith("head.")


def second_round(name: str, toy: Path, **more: Any) -> tuple[Any, dict[int, Any]]:
    """A simulation after one round, and every client's result of the second."""
    s, _ = simulate(name, toy, 1, **more)
    m, rng = s.method, s.fed.rng.child("round", 2)
    results = {}
    for i, data in enumerate(s.data.clients):
        payload = m.download(s.config, s.fed, s.progress.state, i)
        results[i] = m.client(s.config, s.fed, payload, s.progress.client_states[i], data, rng.child("client", i))
    return s, results


@pytest.mark.parametrize(("name", "head"), SHARED.items())
def test_one_part_goes_up_and_the_other_stays(name: str, head: bool, toy: Path) -> None:
    s, results = second_round(name, toy)
    for i, result in results.items():
        assert result.upload and all(is_head(key) == head for key in result.upload)
        assert result.client_state.private and all(is_head(key) != head for key in result.client_state.private)
        assert {
            key.removeprefix("model/") for key in result.upload
        } | result.client_state.private.keys() == result.model.keys()
        assert all(same(result.model[key.removeprefix("model/")], tensor) for key, tensor in result.upload.items())
        # What stays belongs to this client: it was trained on from its own last state.
        assert any(
            not torch.equal(tensor, s.progress.client_states[i].private[key])
            for key, tensor in result.client_state.private.items()
        )
        assert any(
            not same(result.client_state.private, other.client_state.private) for j, other in results.items() if j != i
        )


@pytest.mark.parametrize("name", SHARED)
def test_the_shared_part_is_averaged_by_client_sizes(name: str, toy: Path) -> None:
    s, results = second_round(name, toy)
    state = s.method.server(
        s.config, s.fed, s.progress.state, [Upload(i, r.upload) for i, r in results.items()], s.fed.rng
    )
    n = np.array(s.fed.sizes, dtype=np.float64)
    assert len(set(n)) > 1 and state.round == 2
    for key in next(iter(results.values())).upload:
        stacked = np.stack([results[i].upload[key].double().numpy() for i in range(4)])
        np.testing.assert_allclose(
            state.shared[key.removeprefix("model/")].numpy(),
            np.tensordot(n / n.sum(), stacked, 1),
            rtol=1e-6,
            atol=1e-7,
        )


def test_traffic_is_the_parameters_of_the_shared_part(toy: Path) -> None:
    """cnn_small on 1×8×8, 4 classes: convolutions (1·9+1)·64, (64·9+1)·128, (128·9+1)·256, norms 2·(64+128+256); head
    256·4+4."""
    features = 4 * (10 * 64 + 577 * 128 + 1153 * 256 + 2 * 448)
    head = 4 * (256 * 4 + 4)
    for name, bytes_ in (("fedper", features), ("lgfedavg", head), ("fedavg", features + head), ("local", 0)):
        _, rows = simulate(name, toy, 1)
        assert (rows[0]["bytes_up"], rows[0]["bytes_down"]) == (4 * bytes_, 4 * bytes_), name


def test_local_training_goes_on_from_its_own_model_and_hears_nothing(toy: Path) -> None:
    s, results = second_round("local", toy, active_clients=0)
    assert all(r.upload == {} and count_bytes(r.upload) == 0 for r in results.values())
    alone, _ = simulate("local", toy, 2)
    # The second round on the client states of the first, as the engine runs it.
    assert all(same(alone.progress.client_states[i].model, results[i].client_state.model) for i in range(4))
    assert all(not same(results[0].client_state.model, results[i].client_state.model) for i in (1, 2, 3))
    assert s.global_model() is None


@pytest.mark.parametrize("name", [*SHARED, "local"])
def test_a_client_that_sits_out_keeps_its_part(name: str, toy: Path) -> None:
    s, _ = simulate(name, toy, 2, active_clients=2)
    first = dict(s.progress.client_states)
    now = set(choose_cohort(s.settings, s.fed.rng, 3).clients)
    assert set(first) - now and set(first) & now
    s.run_round()
    for i in first:
        assert same(vars(first[i]), vars(s.progress.client_states[i])) == (i not in now)
