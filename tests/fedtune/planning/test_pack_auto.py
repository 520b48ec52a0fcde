"""What --slots auto picks, from speeds that are made up and from a real federation."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedtune.api import resume as resuming
from fedtune.machine import resources
from fedtune.machine.resources import Share
from fedtune.options import SearchRequest
from fedtune.planning import pack_auto as probe
from fedtune.planning import timed_federations as measuring
from fedtune.planning.pack_auto import Bounds, Sample, explore, pick
from fedtune.planning.plan import plan
from fedtune.planning.timed_federations import MIB, Footprint, OutOfMemory, rate, typical
from fedtune.record.experiment import Experiment
from search_spaces.errors import UserError
from tests import forked
from tests.fedtune.conftest import start
from trainables import registry

#: Steps per second of a small net by (trials, threads) on two cores, as measured.
LENET = {(1, 1): 206.0, (1, 2): 320.0, (2, 1): 411.0, (4, 1): 387.0, (2, 2): 54.0}
#: A machine of 16 cores whose GPU is full with 8 trials.
GPU = {1: 100.0, 2: 190.0, 4: 330.0, 8: 420.0, 16: 400.0}


def speeds(
    table: Callable[[int, int], float], asked: list[tuple[int, int]] | None = None
) -> Callable[[int, int], Sample]:
    def ask(trials: int, threads: int) -> Sample:
        if asked is not None:
            asked.append((trials, threads))
        per_second = table(trials, threads)
        return Sample(trials, threads, trials / per_second, 3600 * per_second)

    return ask


def plenty() -> int:
    return 1000


def chosen(table: list[Sample]) -> tuple[int, int]:
    best = pick(table)
    return best.trials, best.threads


def test_two_trials_with_a_thread_beat_one_with_two() -> None:
    asked: list[tuple[int, int]] = []
    table, why = explore(speeds(lambda n, t: LENET[n, t], asked), Bounds(cores=2, most=2), plenty)
    assert asked == [(1, 1), (1, 2), (2, 1)] and chosen(table) == (2, 1) and "allowed" in why


def test_it_ends_where_more_at_once_yield_no_more() -> None:
    asked: list[tuple[int, int]] = []
    table, why = explore(speeds(lambda n, t: GPU[n], asked), Bounds(cores=16, most=16), plenty)
    assert asked == [(1, 1), (1, 16), (2, 1), (2, 8), (4, 1), (4, 4), (8, 1), (8, 2), (16, 1)]
    assert chosen(table) == (8, 1) and "finished no more" not in why  # 16 was the most that is allowed
    wider: dict[int, float] = {**GPU, 32: 390.0}
    table, why = explore(speeds(lambda n, t: wider[n]), Bounds(cores=64, most=64), plenty)
    assert max(s.trials for s in table) == 16 and chosen(table) == (8, 1) and "finished no more" in why


def test_a_trial_that_gains_from_threads_gets_them() -> None:
    table, _ = explore(speeds(lambda n, t: float(min(n * t, 4))), Bounds(cores=4, most=2), plenty)
    assert chosen(table) == (1, 4), "of arrangements as good as each other the one with fewest trials"
    table, _ = explore(speeds(lambda n, t: n * t**0.5), Bounds(cores=4, most=2), plenty)
    assert chosen(table) == (2, 2)


def test_a_lag_that_is_no_power_of_two_is_measured_too() -> None:
    table, _ = explore(speeds(lambda n, t: float(n)), Bounds(cores=16, most=6), plenty)
    assert [s.trials for s in table if s.threads == 1] == [1, 2, 4, 6] and chosen(table) == (6, 1)


def test_memory_bounds_it() -> None:
    table, why = explore(speeds(lambda n, t: float(n)), Bounds(cores=8, most=8), lambda: 3)
    assert max(s.trials for s in table) == 3 and why == "no more than 3 fit into memory"

    def full(trials: int, threads: int) -> Sample:
        if trials > 2:
            raise OutOfMemory
        return Sample(trials, threads, 1.0, 3600.0 * trials)

    table, why = explore(full, Bounds(cores=8, most=8), plenty)
    assert chosen(table) == (2, 1) and why == "4 did not fit into memory"
    with pytest.raises(UserError, match="does not fit into the memory"):
        explore(lambda trials, threads: full(3, 1), Bounds(cores=8, most=8), plenty)


def test_bundles_are_measured_as_whole_processes() -> None:
    """Of five trials each, on four cores: memory for three; and of which two finish no more an hour than one."""
    asked: list[tuple[int, int]] = []
    bounds = Bounds(cores=4, most=20, bundle=5)
    table, why = explore(speeds(lambda n, t: n * t**0.5, asked), bounds, lambda: 3)
    assert asked == [(5, 1), (5, 4), (10, 1), (10, 2), (15, 1)] and "no more than 15 fit" in why
    table, why = explore(speeds(lambda n, t: 1.0), bounds, plenty)
    assert {sample.trials for sample in table} == {5, 10} and chosen(table) == (5, 1)

    def full(trials: int, threads: int) -> Sample:
        raise OutOfMemory

    with pytest.raises(UserError, match="fewer seeds, or no bundle"):
        explore(full, bounds, plenty)


def test_what_was_given_is_not_measured() -> None:
    asked: list[tuple[int, int]] = []
    table, _ = explore(speeds(lambda n, t: float(n), asked), Bounds(cores=8, most=4, threads=2), plenty)
    assert asked == [(1, 2), (2, 2), (4, 2)] and chosen(table) == (4, 2)


def test_how_many_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    from trainables.worker.process import CONTEXT

    monkeypatch.setattr(probe, "available", lambda: 1000 * MIB)
    # One of 300 MiB of its own is there already; 900 MiB may be taken: three more.
    assert probe.fit(Footprint(resident=400 * MIB, private=300 * MIB)) == 4
    gpu = Footprint(400 * MIB, 300 * MIB, gpu=3 * CONTEXT, gpu_total=13 * CONTEXT, gpu_free=12 * CONTEXT)
    assert probe.fit(gpu) == 3, "13 contexts' worth: three trials of three and their contexts"


def test_only_time_side_by_side_counts() -> None:
    assert rate([[0.0, 1.0, 2.0, 3.0, 4.0]]) == 1.0
    # From 1 to 4 both ran: the first did 3 rounds, the second 6 halves of its 7.
    assert rate([[0.0, 1.0, 2.0, 3.0, 4.0], [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5]]) == pytest.approx((3 + 6) / 3)
    # A round that is cut counts in part: of 0 to 4, of which 1 to 3.
    assert rate([[1.0, 3.0], [0.0, 4.0]]) == pytest.approx((1 + 0.5) / 2)
    assert rate([[0.0, 1.0], [2.0, 4.0]]) == pytest.approx(1.5)


class Costly:
    """A simulation built for 2 rounds: one second a round, 9 more every `interval` rounds and in the last; half a
    second to evaluate, of which 0.3 `at_end` only where that is so. `warm_up` seconds more in the first round."""

    def __init__(self, interval: int, eval_every: int, warm_up: float = 100.0, at_end: bool = False) -> None:
        self.interval, self.eval_every, self.warm_up, self.round = interval, eval_every, warm_up, 0
        self.at_end = at_end

    def step(self) -> list[dict[str, float]]:
        self.round += 1
        last = self.round == 2
        evaluation = 0.5 if last or self.round % self.eval_every == 0 else 0.0
        if self.at_end and not last:
            evaluation = min(evaluation, 0.2)
        work = (
            1.0
            + (9.0 if self.interval and (last or self.round % self.interval == 0) else 0.0)
            + (self.warm_up if self.round == 1 else 0.0)
        )
        return [{"seconds": work + evaluation, "seconds_evaluation": evaluation}]


@pytest.mark.parametrize(
    ("interval", "eval_every", "rounds"),
    [(0, 1, 10), (10, 1, 30), (3, 1, 30), (3, 2, 7), (10, 5, 12), (2, 1, 5), (100, 1, 20)],
)
def test_a_round_costs_what_it_does_on_average(interval: int, eval_every: int, rounds: int) -> None:
    values: dict[str, Any] = {"gme_interval": interval, "eval_every": eval_every, "rounds": rounds}
    expected = 0.0
    for t in range(1, rounds + 1):
        expected += (
            1.0
            + (9.0 if interval and (t % interval == 0 or t == rounds) else 0.0)
            + (0.5 if t % eval_every == 0 or t == rounds else 0.0)
        )
    assert typical(Costly(interval, eval_every), values)[0] == pytest.approx(expected / rounds)
    if eval_every == 1:
        expected -= 0.3 * (rounds - 1)
        values["eval_test"] = "end"
        assert typical(Costly(interval, eval_every, at_end=True), values)[0] == pytest.approx(expected / rounds)


@pytest.mark.parametrize(
    ("warm_up", "interval", "patience", "rounds", "cost"),
    [
        (100.0, 10, 200.0, 3, 1.0 + 9.0 / 10 + 0.5),
        (100.0, 10, 105.0, 2, 10.0 + 0.5),  # the first round cost more than the second: that stands for all
        (2.0, 10, 5.0, 2, 3.0 + (10.0 - 3.0) / 10 + 0.5),  # the first one stands for those without extra work
        (100.0, 0, 50.0, 2, 1.0 + 0.5),
    ],
)
def test_where_rounds_are_long_two_are_timed(
    warm_up: float, interval: int, patience: float, rounds: int, cost: float
) -> None:
    simulation = Costly(interval, 1, warm_up)
    values = {"gme_interval": interval, "eval_every": 1, "rounds": 30}
    assert typical(simulation, values, patience)[0] == pytest.approx(cost)
    assert simulation.round == rounds


@pytest.mark.parametrize("trials", range(1, 65))
def test_parts_of_a_gpu_fit_as_often_as_they_say(trials: int) -> None:
    share = resources.part(trials)
    assert round(share, 4) == share and trials * share <= 1 < (trials + 1) * share


@pytest.mark.parametrize(
    ("gpus", "share", "room"),
    [(1, 0.25, 4), (2, 0.4, 4), (2, 1 / 3, 6), (3, 1.0, 3), (4, 2.0, 2), (3, 2.0, 1), (1, 2.0, 0), (8, 0.25, 16)],
)
def test_a_part_of_a_gpu_is_a_part_of_one(gpus: int, share: float, room: int) -> None:
    assert resources.room_on(16, gpus, 1.0, share) == room


@pytest.mark.parametrize(
    ("gpus", "options", "most"),
    [
        (2, {"per_trial": {"gpus": 0.4}}, 2),  # of each GPU; together they have room for four, and not for five
        (2, {"per_trial": {"gpus": 0.2}}, 4),  # the eight cores of each would do; in the fixed order the lag does not
        (2, {"per_trial": {"gpus": 0.4}, "sampler": "random", "scheduler": "none"}, 2),
        (2, {"per_trial": {"gpus": 0.1}, "sampler": "random", "scheduler": "none"}, 8),
        (0, {"per_trial": {"cpus": 3.0}, "sampler": "random", "scheduler": "none"}, 5),
    ],
)
def test_what_limits_the_choice(
    small: Callable[..., SearchRequest], gpus: int, options: dict[str, Any], most: int
) -> None:
    here = resources.Machine(16, gpus)
    asked = small(trials=30, **options)
    e = plan(dataclasses.replace(small(trials=30, order="fixed"), slots=None)).experiment
    e = dataclasses.replace(e, lag=8, gpus_per_trial=asked.gpus_per_trial or 0.0)
    e = dataclasses.replace(e, **{key: options[key] for key in ("sampler", "scheduler") if key in options})
    assert probe.limits(e, asked, here).most == most


@pytest.mark.parametrize(
    ("had", "then"),
    [
        ((1.0, 0.25), (1.0, 0.5)),
        ((1.0, 0.5), (1.0, 1.0)),
        ((1.0, 0.3333), (1.0, 0.6666)),
        ((1.0, 0.6666), (1.0, 1.0)),
        ((1.0, 0.5, "T4"), (1.0, 1.0, "T4")),
        ((1.0, 1.0), None),
        ((1.0, 2.0), None),
        ((1.0, 0.0), (2.0, 0.0)),
        ((10.0, 0.0), (16.0, 0.0)),
        ((16.0, 0.0), None),
    ],
)
def test_a_larger_share(had: tuple[Any, ...], then: tuple[Any, ...] | None) -> None:
    assert resources.larger(Share(*had), 16) == (None if then is None else Share(*then))


@pytest.mark.parametrize(
    ("had", "gpus", "then"),
    [("T4", 1.0, "A10G"), ("A10G", 1.0, "H100"), ("", 2.0, "H100"), ("H100", 1.0, None), ("T4", 0.5, None)]
    + [("L4", 1.0, None)],  # of which no driver said anything
)
def test_a_larger_card_is_the_next_larger_one(had: str, gpus: float, then: str | None) -> None:
    """One of no kind that Ray knows has memory too, but cannot be asked for."""
    memory = {"H100": 81559, "T4": 15360, "": 48000, "A10G": 24564, "V100": 16384 - 1024}
    found = resources.larger_card(Share(2.0, gpus), had, memory)
    assert found == (None if then is None else Share(2.0, gpus, then))


@pytest.mark.parametrize(
    ("shares", "fit"),
    [
        ([(1, 0.5)] * 8, True),
        ([(1, 0.5)] * 9, False),
        ([(1, 0.4)] * 9, False),  # two on each of four
        ([(1, 0.4), (1, 0.6)] * 4, True),
        ([(1, 1.0), (1, 0.75), (1, 0.75), (1, 0.25), (1, 0.25)], True),
        ([(1, 1.0), (1, 0.75), (1, 0.75), (1, 0.75), (1, 0.5)], False),
        ([(1, 2.0), (1, 2.0)], True),
        ([(1, 3.0)], False),  # no machine has three
        ([(4, 1.0), (1, 0.25)] * 2, True),
        ([(5, 1.0), (1, 0.25)], True),
        ([(5, 1.0), (2, 1.0), (5, 0.25)], False),  # of cores four and one are left
        ([(7, 1.0)], False),
        ([(6, 0.0), (6, 0.0), (2, 0.0), (2, 0.0), (2, 0.0)], True),
        ([(1, 2.0), (1, 1.0, "H100"), (1, 1.0, "H100")], True),
        ([(1, 1.0, "H100")] * 3, False),
        ([(1, 1.0, "T4")], False),
        ([(6, 0.0), (6, 0.0), (4, 0.0), (3, 0.0)], False),  # seven are left, in two places of which none has three
    ],
)
def test_trials_fit_side_by_side(shares: list[tuple[Any, ...]], fit: bool) -> None:
    """On two machines of two GPUs and six cores, of which one has H100, and one of six cores without."""
    machines = [resources.Machine(6, 2), resources.Machine(6, 0), resources.Machine(6, 2, "H100")]
    assert resources.fit([Share(*share) for share in shares], machines) == fit


def test_a_crowd_is_told() -> None:
    assert resources.crowding(2, 1, 2) is None and resources.crowding(1, 2, 2) is None
    assert "4 threads on 2 cores" in str(resources.crowding(2, 2, 2)) and "--slots 1" in str(
        resources.crowding(2, 2, 2)
    )
    assert "no faster than --slots 2" in str(resources.crowding(4, 1, 2))


@pytest.fixture
def small(toy: Path, tmp_path: Path) -> Callable[..., SearchRequest]:
    def make(**options: Any) -> SearchRequest:
        return SearchRequest(
            "fedavg",
            dataset=str(toy),
            name=tmp_path / "runs" / "run",
            slots="auto",
            set=("clients=3", "partition=iid", "local_steps=2", "model=lenet5"),
            **options,
        )

    return make


def test_a_real_federation_is_measured(
    small: Callable[..., SearchRequest], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(measuring, "WINDOW", 0.2)
    found = plan(small(trials=7, plain=True))
    e, facts = found.experiment, found.facts["packing"]
    assert (e.concurrency, e.threads, e.cpus_per_trial) == (
        facts["concurrency"],
        facts["threads"],
        facts["cpus_per_trial"],
    )
    assert e.concurrency * e.threads <= resources.cores()
    assert [row["trials"] for row in facts["table"]][:2] == [1, 1] and all(
        row["trials_per_hour"] > 0 for row in facts["table"]
    )
    assert 50 < facts["private_mib"] < facts["peak_mib"]
    text = "\n".join(found.notes)
    assert "trials/hour" in text and f"Slots: {e.concurrency} × (" in text and "←" in text
    told = capsys.readouterr().err
    assert "measuring 1 trial at once with 1 thread each" in told
    assert not found.folder.parent.exists()


class Roomy:
    """Federations of which two fit."""

    surcharge, footprint = 1.0, Footprint(2, 1)

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __enter__(self) -> Roomy:
        return self

    def __exit__(self, *error: Any) -> None: ...

    def time(self, count: int, threads: int) -> float:
        if count > 2:
            raise OutOfMemory
        return float(count)


class Endless(Roomy):
    """Federations of which as many fit as there are cores, none of them slower for it."""

    def time(self, count: int, threads: int) -> float:
        return float(count)


def test_as_many_run_as_were_measured_to_be_fastest(
    small: Callable[..., SearchRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "Federations", Endless)
    monkeypatch.setattr(resources, "machine", lambda: resources.Machine(8, 0))
    monkeypatch.setattr(probe, "available", lambda: 100)
    monkeypatch.setattr(probe.os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    found = plan(small(trials=20))
    assert (found.experiment.concurrency, found.experiment.order) == (8, "arrival")
    assert any("the same seed may give other trials" in note for note in found.notes), found.notes


@pytest.mark.parametrize(
    ("gpus", "options", "expected"),
    [
        (0, {}, (16, 0.25, 0.0, 4)),  # four processes of four trials, each on a core
        (1, {}, (16, 0.25, 0.0625, 4)),
        (2, {"trials": 30}, (16, 0.25, 0.125, 4)),  # two cores for each GPU: eight trials there
        (0, {"per_trial": "bundle=4,cpus=0.5"}, (8, 0.5, 0.0, 4)),
        (0, {"trials": 6}, (4, 0.25, 0.0, 4)),  # a bundle that is whole was measured
    ],
)
def test_slots_of_bundles(
    small: Callable[..., SearchRequest],
    monkeypatch: pytest.MonkeyPatch,
    gpus: int,
    options: dict[str, Any],
    expected: tuple[Any, ...],
) -> None:
    made: list[dict[str, Any]] = []

    class Noted(Endless):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            made.append(kwargs)

        def time(self, count: int, threads: int) -> float:
            return float(count)  # another thread gains nothing

    monkeypatch.setattr(probe, "Federations", Noted)
    monkeypatch.setattr(resources, "machine", lambda: resources.Machine(4, gpus))
    monkeypatch.setattr("fedtune.planning.plan.device_of", lambda gpus, address: "cpu")
    monkeypatch.setattr(probe, "available", lambda: 1000)
    monkeypatch.setattr(probe.os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    given: dict[str, Any] = {"trials": 20, "per_trial": "bundle=4", "sampler": "random", "scheduler": "none"}
    found = plan(small(**given | options))
    e = found.experiment
    assert (e.concurrency, e.cpus_per_trial, e.gpus_per_trial, e.bundle) == expected
    assert made[0]["bundle"] == 4
    assert any("for the 4 of a bundle" in note for note in found.notes)


def test_an_answer_is_not_waited_for_without_end(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "PATIENCE", 0.1)
    with (
        measuring.Federations("fedavg", {"dataset": str(toy)}, (0,)) as federations,
        pytest.raises(UserError, match="--slots auto has waited 0 minutes for one configuration"),
    ):
        federations.time(1, 1)


def test_a_federation_that_does_not_run_is_a_sentence(toy: Path) -> None:
    given = {"dataset": str(toy), "clients": 3, "partition": "iid", "active_clients": 9}
    values = {key: parameter.default for key, parameter in registry.declared("fedavg").items()} | given
    words = "could not run one configuration in the middle of the space: active_clients must be"
    with measuring.Federations("fedavg", values, (0,)) as federations, pytest.raises(UserError, match=words):
        federations.time(1, 1)


def test_nothing_is_measured_where_that_is_not_asked_for(
    small: Callable[..., SearchRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Federations, the only thing that measures, are not even there."""
    monkeypatch.delattr(probe, "Federations")
    assert "packing" not in plan(dataclasses.replace(small(), slots=None)).facts


def test_a_resumed_run_keeps_its_threads_and_is_not_crowded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start(tmp_path / "run", threads=2, trials=2)
    monkeypatch.setattr(resources, "cores", lambda: 2)
    with pytest.raises(
        UserError,
        match=r"slots must be at most 1, as each trial of this run has 2 threads and there are 2 cores, got 2",
    ):
        resuming.resume(tmp_path / "run", slots=2, per_trial="cpus=1")
    driven: list[Any] = []
    monkeypatch.setattr(resuming, "driven", lambda part, notes, *_: driven.append((part.experiment, notes)))
    resuming.resume(tmp_path / "run", slots=2, plain=True)
    ((experiment, notes),) = driven
    assert (experiment.concurrency, experiment.threads) == (2, 2) and "4 threads on 2 cores" in " ".join(notes)


def test_a_share_that_is_given_later_holds_for_every_kind_of_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts that were measured by kind stay until another part is asked for."""
    parts = {"H100": 0.125, "T4": 0.5}
    start(tmp_path / "run", gpus_per_trial=0.5, gpus_by_kind=parts, trials=2)
    monkeypatch.setattr(resources, "machine", lambda: resources.Machine(8, 1))
    driven: list[Any] = []
    monkeypatch.setattr(resuming, "driven", lambda part, notes, *_: driven.append(part.experiment.placement))
    resuming.resume(tmp_path / "run", plain=True)
    resuming.resume(tmp_path / "run", per_trial="gpus=0.25", plain=True)
    assert [(place.gpus, place.by_kind) for place in driven] == [(0.5, parts), (0.25, {})]


@pytest.mark.usefixtures("forks")
def test_the_command_prints_and_records_what_it_chose(toy: Path, tmp_path: Path) -> None:
    words = [
        "search",
        "fedavg",
        "--dataset",
        str(toy),
        "--set",
        "clients=3",
        "--set",
        "partition=iid",
        "--set",
        "local_steps=2",
        "--set",
        "model=lenet5",
        "--slots",
        "auto",
        "--trials",
        "2",
        "--rounds",
        "1",
        "--name",
        "packed",
    ]
    done = forked.run(["-m", "fedtune", *words], cwd=tmp_path, timeout=900)
    assert done.returncode == 0, done.stderr
    chosen = json.loads((tmp_path / "runs" / "packed" / "provenance.json").read_text())["packing"]
    made = Experiment.read(tmp_path / "runs" / "packed")
    assert (made.concurrency, made.threads) == (chosen["concurrency"], chosen["threads"]) and chosen[
        "why"
    ] in done.stderr
    for row in chosen["table"]:
        assert f"measuring {row['trials']} trial" in done.stderr
    assert f"Slots: {made.concurrency} × (" in done.stderr and "2 trials done" in done.stdout
