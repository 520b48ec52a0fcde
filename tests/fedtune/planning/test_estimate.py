"""What a dry run says that a round costs: measured where rounds are quick, else concluded from a round's first steps.

The clock of these tests is a count of multiply-adds, so that what is concluded can be compared with what a whole round
computes, and no test depends on how fast anything is."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedtune.commands import _output
from fedtune.options import SearchRequest
from fedtune.planning import estimate as module
from fedtune.planning.estimate import ERROR, START_UP, Known, concluded, estimate, turns
from fedtune.planning.plan import plan
from tests.fedtune.conftest import experiment
from trainables import registry
from trainables.simulation.replicates import Replicates
from trainables.simulation.rounds import Simulation
from trainables.work import Computed, counting


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Computed]:
    """Everything that is computed in the test; an operation is worth next to nothing. Sets of images are small here."""
    monkeypatch.setattr(module, "OPERATION", 1)
    monkeypatch.setattr(module, "IMAGES", 10)
    monkeypatch.setattr(module, "OWN_IMAGES", 3)
    with counting() as found:
        yield found


def simulation(method: str, toy: Path, **changed: Any) -> tuple[Simulation, dict[str, Any]]:
    values = registry.resolve(
        method, {"dataset": str(toy), "model": "cnn_small", "clients": 4, "local_steps": 6, **changed}
    )
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
        ("fedavg", {}),  # a server that does next to nothing
        ("local", {}),  # and one that does nothing
        ("fedavg", {"local_epochs": 2, "batch_size": 7}),  # clients with as many steps as they have samples for
        ("dfrd", {"base": "fedavg", "clients": 2, "server_iters": 3, "gen_steps": 3, "distill_steps": 4}),
        (
            "dfrd",
            {"base": "heterofl", "clients": 3, "rho": 5, "server_iters": 3, "gen_steps": 1, "distill_steps": 1},
        ),  # clients of several widths
        ("fedgen", {"gen_steps": 7}),
        ("fedbabu", {"finetune_epochs": 3}),  # what clients train for the measurement alone
        (
            "dhf",
            {"model": "cnn2", "clients": 2, "gme_interval": 5, "server_iters": 3},
        ),  # clients of several architectures; work that is done at times
    ],
)
def test_first_steps_tell_what_a_whole_round_computes(
    method: str, changed: dict[str, Any], toy: Path, counted: Computed
) -> None:
    measured, values = simulation(method, toy, rounds=2, **changed)
    found = concluded(measured, values | {"rounds": 1}, lambda: counted.multiply_adds)  # the measured one is a last one
    assert found == pytest.approx(whole_round(measured, counted), rel=0.05)


def test_what_is_not_done_in_every_round_counts_in_proportion(toy: Path, counted: Computed) -> None:
    values = {"model": "cnn2", "clients": 2, "gme_interval": 5, "server_iters": 3, "eval_every": 4}

    def clock() -> float:
        return counted.multiply_adds

    always, of_always = simulation("dhf", toy, rounds=1, **values)
    seldom, of_seldom = simulation("dhf", toy, rounds=20, **values)
    short = module._ShortRound(seldom, of_seldom, clock, {})
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
    short = module._ShortRound(every, of_every, clock, {})
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
        short = module._ShortRound(*simulation("fedavg", toy, **changed), lambda: counted.multiply_adds, {})
        short._first_round()
        return short._clients()

    slow = clients(stragglers=0.5, straggler_work=0.2)
    assert slow == pytest.approx(clients() * (0.5 + 0.5 * 0.2), rel=1e-6)


def test_concluding_leaves_the_simulation_as_it_was(toy: Path) -> None:
    one, values = simulation("fedgen", toy)
    other, _ = simulation("fedgen", toy)
    concluded(one, values)
    rows = [{key: value for key, value in s.run_round().items() if "seconds" not in key} for s in (one, other)]
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


@pytest.mark.parametrize("long", [False, True])
def test_long_rounds_are_concluded_and_the_plan_says_so(
    long: bool, toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole: list[int] = []
    monkeypatch.setattr(module, "typical", lambda federation, *_: (whole.append(1) or 0.5, 0.5))
    monkeypatch.setattr(module, "PATIENCE", 0.0 if long else 1e9)
    planned = plan(SearchRequest("fedavg", dataset=toy, set={"model": "mlp", "local_steps": 2}, name=tmp_path / "made"))
    found = estimate(planned)
    assert (found.error, len(whole)) == ((ERROR, 0) if long else (0.0, 1)) and found.round_seconds > 0
    _output.estimate(found, as_json=True)
    assert json.loads(capsys.readouterr().out)["round_seconds_error"] == (ERROR if long else None)
    _output.estimate(found, as_json=False)
    said = " ".join(capsys.readouterr().out.split())
    assert ("from its first steps, give or take 25 %" in said) == long


def test_clients_that_are_trained_as_one_program_are_timed_as_they_are(
    toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    monkeypatch.setattr(module, "concluded", lambda *_: pytest.fail("concluded"))
    values = registry.resolve("fedavg", {"dataset": str(toy), "model": "mlp", "local_steps": 1, "executor": "vmap"})
    found = module.timed_cost("fedavg", values, 0, device="cpu", threads=1, data_dir=None)
    assert found.error == 0 and found.seconds > 0


@pytest.mark.parametrize(
    ("changes", "trials", "expected"),
    [
        ({"concurrency": 2}, 30, 15),
        ({"concurrency": 1}, 7, 7),
        ({"concurrency": 4, "early": 0}, 30, 8),
        ({"concurrency": 4}, 8, 4),
        ({"concurrency": 4}, 12, 5),
        ({"concurrency": 4}, 30, 10),
        ({"concurrency": 4, "taken": 8}, 12, 3),
        ({"concurrency": 4, "order": "arrival"}, 30, 8),
        ({"concurrency": 6, "sampler": "random", "scheduler": "none"}, 30, 5),
        ({"concurrency": 4}, 0, 0),
    ],
)
def test_trials_that_wait_for_others_take_longer(
    tmp_path: Path, changes: dict[str, Any], trials: int, expected: int
) -> None:
    """Played second by second, with trials that all take one."""
    e = experiment(tmp_path, **{"early": 8, **changes})
    assert turns(e, trials) == expected
    ended, following, second = e.taken, e.taken, 0
    while ended < e.taken + trials:
        while following < min(e.taken + trials, ended + e.concurrency):
            if e.looks_back and e.order == "fixed" and e.seen(following) > ended:
                break
            following += 1
        ended, second = following, second + 1
    assert second == expected


def test_a_dry_run_allows_for_it(toy: Path, tmp_path: Path) -> None:
    given = {"model": "mlp", "local_steps": 1, "clients": 3}
    planned = plan(SearchRequest("fedavg", dataset=str(toy), set=given, name=tmp_path / "run", trials=12, rounds=4))
    wide = dataclasses.replace(planned, experiment=dataclasses.replace(planned.experiment, concurrency=4))
    found = estimate(wide)
    assert found.at_most == pytest.approx(START_UP + 5 * 4 * found.round_seconds)
