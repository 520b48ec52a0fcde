"""What is concluded of a round from parts of it: in proportion, and from no more than a bounded part.

The clock of these tests is a count of multiply-adds, so that what is concluded can be compared with what a whole round
computes, and no test depends on how fast anything is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedtune.planning import short_round as module
from fedtune.planning.short_round import Known, ShortRound, concluded
from tests.contracts.test_methods import untimed
from trainables import registry
from trainables.simulation.replicates import Replicates
from trainables.simulation.rounds import Simulation
from trainables.work import Computed, counting

#: For how long each phase may be timed, by the clock of these tests: for no more than must be, without end.
LEAST, MUCH = 0.0, 1e15


def allow(monkeypatch: pytest.MonkeyPatch, duration: float) -> None:
    """Each phase may be timed for so long."""
    for phase in ("CLIENTS", "SERVER", "EVALUATION"):
        monkeypatch.setattr(module, phase, duration)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Computed]:
    """Everything that is computed in the test; an operation is worth next to nothing. Sets of images are small here,
    and each phase may be timed without end."""
    small = {
        "OPERATION": 1,
        "IMAGES": 10,
        "OWN_IMAGES": 3,
        "LEAST_IMAGES": 2,
        "DATA": 12,
        "SERVER_BATCH": 4,
        "STEPS": 3,
    }
    for name, value in small.items():
        monkeypatch.setattr(module, name, value)
    allow(monkeypatch, MUCH)
    with counting() as found:
        yield found


def simulation(method: str, toy: Path, **changed: Any) -> tuple[Simulation, dict[str, Any]]:
    values = registry.resolve(method, {"dataset": str(toy), "model": "mlp", "clients": 4, "local_steps": 6, **changed})
    return Replicates(method, values, (0,)).simulations[0], values


def whole_round(simulation: Simulation, counted: Computed) -> float:
    """What the second round computes; it is the last one planned."""
    simulation.run_round()
    begun = counted.multiply_adds
    simulation.run_round()
    return counted.multiply_adds - begun


@pytest.mark.parametrize(
    ("method", "changed"),
    [
        ("fedavg", {"model": "cnn_small"}),  # a server that does next to nothing
        ("local", {}),  # and one that does nothing
        ("fedavg", {"local_epochs": 2, "batch_size": 7}),  # clients with as many steps as they have samples for
        ("dfrd", {"base": "fedavg", "clients": 2, "server_iters": 3, "gen_steps": 3, "distill_steps": 4}),
        (
            "dfrd",
            {"base": "heterofl", "clients": 3, "rho": 5, "server_iters": 3, "gen_steps": 1, "distill_steps": 1},
        ),  # clients of several widths
        ("fedftg", {"clients": 3, "server_iters": 4, "gen_steps": 3, "distill_steps": 2}),
        ("dense", {"model": "lenet_code", "clients": 3, "server_iters": 3, "gen_steps": 3, "distill_steps": 3}),
        ("fedgen", {"gen_steps": 7}),
        ("fedproto", {"model": "cnn2", "local_steps": 8}),  # clients that go over all of their samples for the upload
        ("fedbabu", {"finetune_epochs": 3}),  # what clients train for the measurement alone
        (
            "dhf",
            {"model": "cnn2", "server_model": "cnn2", "clients": 2, "gme_interval": 5, "server_iters": 3},
        ),  # clients of several architectures; work that is done at times
    ],
)
def test_first_steps_tell_what_a_whole_round_computes(
    method: str, changed: dict[str, Any], toy: Path, counted: Computed, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured, values = simulation(method, toy, rounds=2, **changed)
    found = []
    for duration in (LEAST, MUCH):
        allow(monkeypatch, duration)
        # The round that is measured below is a last one.
        found.append(concluded(measured, values | {"rounds": 1}, lambda: counted.multiply_adds))
    assert found == pytest.approx([whole_round(measured, counted)] * 2, rel=0.05)


def test_what_is_not_done_in_every_round_counts_in_proportion(toy: Path, counted: Computed) -> None:
    models = {"model": "cnn2", "server_model": "cnn2"}
    values = models | {"clients": 2, "gme_interval": 5, "server_iters": 3, "eval_every": 4}

    def clock() -> float:
        return counted.multiply_adds

    always, of_always = simulation("dhf", toy, rounds=1, **values)
    seldom, of_seldom = simulation("dhf", toy, rounds=20, **values)
    short = ShortRound(seldom, of_seldom, clock, {})
    short._first_round()
    clients, often, rarely = short._clients(), short._server(last=False), short._server(last=True)
    assert rarely > 2 * often
    of_server, own = short._evaluation()
    assert of_server > 0 and own > 0
    assert concluded(always, of_always, clock) == pytest.approx(clients + rarely + of_server + own, rel=1e-6)
    # Of 20 rounds 5 are measured, and in 4 of them the server's model is another one.
    expected = clients + often + (rarely - often) * 4 / 20 + of_server * 4 / 20 + own * 5 / 20
    assert concluded(seldom, of_seldom, clock) == pytest.approx(expected, rel=1e-6)


def test_a_test_set_that_is_measured_at_the_end_counts_there(toy: Path, counted: Computed) -> None:
    def clock() -> float:
        return counted.multiply_adds

    every, of_every = simulation("fedavg", toy, rounds=20)
    end, of_end = simulation("fedavg", toy, rounds=20, eval_test="end")
    short = ShortRound(every, of_every, clock, {})
    short._first_round()
    validation, test = (len(part.indices) for part in (every.data.validation, every.data.test) if part is not None)
    spared = sum(short._evaluation()) * test / (validation + test) * 19 / 20
    assert concluded(every, of_every, clock) - concluded(end, of_end, clock) == pytest.approx(spared, rel=1e-6)


@pytest.mark.parametrize("server", ["fedavg", "fedgen"])
def test_of_many_clients_few_tell_what_all_compute(server: str, toy: Path, counted: Computed) -> None:
    """Of the uploads of 14 clients the server gets 10, and 5 to see what each adds."""
    changed: dict[str, Any] = {"clients": 14, "local_steps": 2, "min_samples": 1, "partition": "iid"}
    measured, values = simulation(server, toy, rounds=2, **changed)
    found = concluded(measured, values, lambda: counted.multiply_adds)
    assert found == pytest.approx(whole_round(measured, counted), rel=0.05)


def test_slow_clients_do_their_share_of_the_steps(toy: Path, counted: Computed) -> None:
    def clients(**changed: Any) -> float:
        short = ShortRound(*simulation("fedavg", toy, **changed), lambda: counted.multiply_adds, {})
        short._first_round()
        return short._clients()

    slow = clients(stragglers=0.5, straggler_work=0.2)
    assert slow == pytest.approx(clients() * (0.5 + 0.5 * 0.2), rel=1e-6)


def test_concluding_leaves_the_simulation_as_it_was(toy: Path) -> None:
    one, values = simulation("fedgen", toy)
    other, _ = simulation("fedgen", toy)
    concluded(one, values)
    rows = [untimed(s.run_round()) for s in (one, other)]
    assert rows[0] == rows[1]


def test_what_computes_the_same_is_not_timed_again(toy: Path, counted: Computed) -> None:
    known = Known()
    first, values = simulation("fedavg", toy)
    seconds = concluded(first, values, lambda: counted.multiply_adds, known)

    def clock() -> float:
        raise AssertionError("timed again")

    again, values = simulation("fedavg", toy)
    assert concluded(again, values, clock, known) == seconds
    longer, values = simulation("fedavg", toy, local_steps=12)  # its steps are the same ones
    assert concluded(longer, values, clock, known) > 1.5 * seconds
    larger, values = simulation("fedavg", toy, batch_size=32)
    with pytest.raises(AssertionError, match="timed again"):
        concluded(larger, values, clock, known)


@pytest.mark.parametrize(
    ("method", "shorter", "longer"),
    [
        ("fedavg", {"local_steps": 4}, {"local_steps": 400}),
        ("fedavg", {"local_epochs": 1, "batch_size": 8}, {"local_epochs": 50, "batch_size": 32}),
        (
            "dfrd",
            {"base": "fedavg", "server_iters": 3, "gen_steps": 3, "distill_steps": 3, "server_batch_size": 16},
            {"base": "fedavg", "server_iters": 99, "gen_steps": 50, "distill_steps": 70, "server_batch_size": 500},
        ),
    ],
)
def test_what_is_computed_does_not_grow_with_the_round(
    method: str,
    shorter: dict[str, Any],
    longer: dict[str, Any],
    toy: Path,
    counted: Computed,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What guards that a dry run ends in seconds, however long a round is."""
    allow(monkeypatch, LEAST)

    def computed(changed: dict[str, Any]) -> tuple[float, float]:
        s, values = simulation(method, toy, **changed)
        begun = counted.multiply_adds
        told = concluded(s, values, lambda: counted.multiply_adds)
        return counted.multiply_adds - begun, told

    (few, of_shorter), (more, of_longer) = computed(shorter), computed(longer)
    assert of_longer > 20 * of_shorter
    assert more == pytest.approx(few, rel=0.01)


@pytest.mark.parametrize(
    "method, changed",
    [
        ("fedavg", {"local_steps": 100, "batch_size": 50}),
        ("dfrd", {"base": "fedavg", "server_iters": 9, "distill_steps": 9, "server_batch_size": 200}),
    ],
)
def test_of_each_phase_no_more_is_timed_than_is_allowed(
    method: str, changed: dict[str, Any], toy: Path, counted: Computed, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = 1e7
    allow(monkeypatch, allowed)
    s, values = simulation(method, toy, **changed)
    least, known = Known(), Known()
    concluded(s, values, lambda: counted.multiply_adds, known)
    allow(monkeypatch, LEAST)
    concluded(s, values, lambda: counted.multiply_adds, least)
    for phase, times in (("client", 1), ("server", 1), ("measure", 2)):
        spent, at_least = (
            sum(seconds for what, seconds in found.items() if what[0] == phase) for found in (known, least)
        )
        assert spent <= times * allowed + at_least
    assert concluded(s, values, lambda: counted.multiply_adds, known) > 20 * allowed
