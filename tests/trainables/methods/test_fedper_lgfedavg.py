"""FedPer, LG-FedAvg and Local Training: the bytes that cross the wire, and what a client keeps while it sits out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contracts.test_methods import same, simulate
from trainables.simulation.rounds import choose_cohort

SHARED = {"fedper": False, "lgfedavg": True}


def test_traffic_is_the_parameters_of_the_shared_part(toy: Path) -> None:
    """cnn_small on 1×8×8, 4 classes: convolutions (1·9+1)·64, (64·9+1)·128, (128·9+1)·256, norms 2·(64+128+256); head
    256·4+4."""
    features = 4 * (10 * 64 + 577 * 128 + 1153 * 256 + 2 * 448)
    head = 4 * (256 * 4 + 4)
    for name, bytes_ in (("fedper", features), ("lgfedavg", head), ("fedavg", features + head), ("local", 0)):
        _, rows = simulate(name, toy, 1)
        assert (rows[0]["bytes_up"], rows[0]["bytes_down"]) == (4 * bytes_, 4 * bytes_), name


@pytest.mark.parametrize("name", [*SHARED, "local"])
def test_a_client_that_sits_out_keeps_its_part(name: str, toy: Path) -> None:
    s, _ = simulate(name, toy, 2, active_clients=2)
    first = dict(s.progress.client_states)
    now = set(choose_cohort(s.settings, s.fed.rng, 3).clients)
    assert set(first) - now and set(first) & now
    s.run_round()
    for i in first:
        assert same(vars(first[i]), vars(s.progress.client_states[i])) == (i not in now)
