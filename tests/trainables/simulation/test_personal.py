"""A model that is fine-tuned before it is measured: from what, on what, by which streams, and that nothing is left of
it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.test_executors import counts, start_alike, wide
from tests.contracts.test_methods import CPU, same, untimed, values_for
from tests.exact import MARGIN, assert_as_exact
from tests.float64 import in_float64
from trainables.local import LocalJob, train
from trainables.method import Personal
from trainables.methods import fedavg
from trainables.params import put, unpack
from trainables.simulation import evaluation
from trainables.simulation.cuda_graphs import Graphs
from trainables.simulation.rounds import Row, Simulation, choose_cohort


def tuning(epochs: int, seen: list[Any] | None = None) -> Personal:
    """FedAvg's training over again, `epochs` passes long; what its job is given is noted in `seen`."""

    def job(*given: Any) -> LocalJob:
        if seen is not None:
            seen.append(given)
        return fedavg.job(*given)

    return Personal(lambda config: replace(config, local_epochs=epochs, lr=0.03) if epochs else None, job)


def simulated(toy: Path, personal: Personal | None, **more: Any) -> Simulation:
    s = Simulation("fedavg", values_for("fedavg", toy, **more), 3, CPU)
    s.method = replace(s.method, personal=personal)
    return s


def rows(s: Simulation, rounds: int) -> list[Row]:
    return [untimed(s.run_round()) for _ in range(rounds)]


def test_local_accuracy_is_that_of_the_servers_new_model_fine_tuned_on_training_data(toy: Path) -> None:
    seen: list[Any] = []
    s = simulated(toy, tuning(2, seen), active_clients=3, client_test_fraction=0.25)
    row = rows(s, 1)[0]
    cohort = choose_cohort(s.settings, s.fed.rng, 1).clients
    assert [data.client for *_, data, _ in seen] == list(cohort)
    test = s.data.test
    assert test.own is not None
    hits, counted = 0, 0
    for config, fed, payload, kept, data, rng in seen:
        assert (config.local_epochs, config.lr, fed, kept) == (2, 0.03, s.fed, None)
        assert same(unpack("model", payload), s.progress.state.model)
        assert data is s.data.clients[data.client]
        assert rng == s.fed.rng.child("round", 1, "personal", data.client)
        module = s.fed.network()
        put(module, s.progress.state.model)
        train(config, module, data, rng)
        own = test.own[data.client]
        right = evaluation.logits_of(module, s.data, test, own).argmax(dim=1) == test.y[own]
        assert row["local_accuracies"][data.client] == float(right.double().mean())
        hits, counted = hits + int(right.sum()), counted + len(own)
    assert row["p_acc"] == hits / counted
    trained_only = rows(simulated(toy, None, active_clients=3, client_test_fraction=0.25), 1)[0]
    assert row["local_accuracies"] != trained_only["local_accuracies"]


def test_no_configuration_no_fine_tuning(toy: Path) -> None:
    assert rows(simulated(toy, tuning(0)), 2) == rows(simulated(toy, None), 2)


@pytest.mark.numeric
def test_measuring_leaves_nothing_behind(toy: Path) -> None:
    """Neither in what is saved nor in a later round, which is the same whether the rounds before were measured."""
    tuned, plain = simulated(toy, tuning(1), rounds=4), simulated(toy, None, rounds=4)
    seldom = simulated(toy, tuning(1), rounds=4, eval_every=4)
    measured, others, last = rows(tuned, 4), rows(plain, 4), rows(seldom, 4)[-1]
    assert same(tuned.save(), plain.save()) and same(tuned.save(), seldom.save())
    assert measured[-1] == last
    unlike = {key for a, b in zip(measured, others, strict=True) for key in a if a[key] != b[key]}
    assert unlike == {"local_accuracies", "local_accuracy", "val_local_accuracy"}  # not the bytes, not the average


def test_a_slow_client_fine_tunes_as_long_as_others(toy: Path) -> None:
    seen: list[Any] = []
    rows(simulated(toy, tuning(1, seen), stragglers=1.0, straggler_work=0.5), 1)
    assert [data.step_share for *_, data, _ in seen] == [1.0] * 4


def test_clients_whose_upload_was_lost_are_not_measured(toy: Path) -> None:
    row = rows(simulated(toy, tuning(1), stragglers=1.0), 1)[0]
    assert Counter(a is None for a in row["local_accuracies"]) == {True: 3, False: 1}


@pytest.mark.numeric
def test_recorded_steps_are_measured_by_the_loops_fine_tuning(toy: Path) -> None:
    loop, recorded = simulated(toy, tuning(2)), simulated(toy, tuning(2))
    recorded.graphs = Graphs(recorded.config, lambda step: step)
    recorded.executor = "graph"
    assert rows(recorded, 2) == rows(loop, 2)


@pytest.mark.numeric
def test_stacked_clients_fine_tune_on_the_loops_batches(toy: Path) -> None:
    loop, stacked = (simulated(toy, tuning(2), executor=e) for e in ("loop", "vmap"))
    exact = wide("fedavg", values_for("fedavg", toy))
    exact.method = loop.method
    start_alike(exact, loop, stacked)
    with in_float64() as mode:
        expected = exact._fine_tuned([0, 2, 3])
    assert_as_exact(stacked._fine_tuned([0, 2, 3]), loop._fine_tuned([0, 2, 3]), expected, decided=mode.margin > MARGIN)
    assert expected is not None and not same(expected[0], expected[2])
    row, other = untimed(stacked.run_round()), untimed(loop.run_round())
    assert counts(row) == counts(other)
