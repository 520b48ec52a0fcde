"""The cache of clients' latest models and its average, on every averaging method."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contracts.test_methods import same, simulate
from trainables.simulation.rounds import choose_cohort

AVERAGING = ("fedavg", "fedprox", "fedgkd", "qffl")


@pytest.mark.parametrize("method", AVERAGING)
def test_the_cache_changes_what_is_read_out_and_not_what_is_trained(method: str, toy: Path) -> None:
    plain, expected = simulate(method, toy, 4, active_clients=2)
    kept, rows = simulate(method, toy, 4, active_clients=2, model_cache=True)
    assert plain.progress.state.cache is None and "oca_amp" not in expected[-1]
    assert [{k: row[k] for k in expected[0]} for row in rows] == expected
    assert all(row["aca_amp"] == row["amp"] and row["aca_wlp"] == row["wlp"] for row in rows)
    overall, again = simulate(method, toy, 4, active_clients=2, readout="oca")
    assert [row["train_loss"] for row in again] == [row["train_loss"] for row in expected]
    assert all(row["oca_amp"] == row["amp"] for row in again)
    assert same(overall.global_model(), kept.progress.state.cache.overall) and not same(
        overall.global_model(), plain.global_model()
    )
    seen = {c for t in range(1, 5) for c in choose_cohort(kept.settings, kept.fed.rng, t).clients}
    assert set(kept.progress.state.cache.latest) == seen


def test_before_the_first_round_the_readout_is_the_initial_model(toy: Path) -> None:
    s, _ = simulate("fedavg", toy, 0, readout="oca")
    assert same(s.global_model(), s.fed.initial_params())
    assert s.method.readouts is not None and s.method.readouts(s.config, s.fed, s.progress.state) == {}
