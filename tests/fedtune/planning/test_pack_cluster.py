"""What --slots auto makes of what it measured on one machine of each kind of a cluster. (That it is measured there, and
that trials are placed so, is tried in tests/end_to_end/test_kinds_of_gpu.py.)"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from fedtune.machine.cluster import Node
from fedtune.machine.resources import Machine
from fedtune.options import SearchRequest
from fedtune.planning.pack_auto import Sample
from fedtune.planning.pack_cluster import Measured, one_of_each, settled
from fedtune.planning.timed_federations import MIB, Footprint
from search_spaces.errors import UserError
from search_spaces.run_folder import ARRIVAL, FIXED
from tests.fedtune.conftest import experiment


def node(host: str, cores: int, gpus: int = 0, kind: str = "") -> Node:
    return Node(host, f"10.0.0.{ord(host[0]) - 96}", Machine(cores, gpus), kind, f"id of {host}")


H100, T4 = node("h", 64, 8, "H100"), node("t", 8, 2, "T4")


def measured(on: Node, *table: tuple[int, int, float]) -> Measured:
    """table: trials, threads, trials per hour."""
    samples = [Sample(trials, threads, 1.0, float(per_hour)) for trials, threads, per_hour in table]
    return Measured(on, samples, "more at once finished no more trials per hour", Footprint(300 * MIB, 200 * MIB), 0.0)


def asked(tmp_path: Path, gpus: float = 1.0, trials: int = 1000, **options: Any) -> tuple[Any, SearchRequest]:
    e = experiment(tmp_path / "run", trials=trials, order=ARRIVAL, gpus_per_trial=gpus, address="auto")
    return e, SearchRequest("fedavg", slots="auto", address="auto", **options)


def test_each_kind_has_its_part_and_slots_are_the_sum_over_machines(tmp_path: Path) -> None:
    """Eight trials on an H100 and two on a T4: 2 × 64 and 2 × 4 slots; the machine without GPUs has none."""
    nodes = [H100, node("i", 64, 8, "H100"), T4, node("u", 16, 2, "T4"), node("c", 32)]
    found = settled(
        *asked(tmp_path),
        [measured(T4, (1, 1, 10), (1, 4, 11), (2, 1, 20)), measured(H100, (4, 1, 90), (8, 1, 100))],
        nodes,
    )
    e = found.experiment
    assert (e.concurrency, e.cpus_per_trial, e.threads) == (2 * 64 + 2 * 4, 1.0, 1)
    assert e.gpus_by_kind == {"T4": 0.5, "H100": 0.125} and e.gpus_per_trial == 0.5
    assert e.placement.by_kind == e.gpus_by_kind
    kinds = [(kind["host"], kind["gpu"], kind["gpus_per_trial"]) for kind in found.facts["kinds"]]
    assert kinds == [("t", "T4", 0.5), ("h", "H100", 0.125)]
    assert found.facts["kinds"][1]["table"][1]["trials_per_hour"] == 100.0
    assert found.facts["kinds"][0]["private_mib"] == 200 and found.facts["concurrency"] == e.concurrency
    assert found.notes[0] == "Measured on t (8 cores and one of 2 GPUs, T4), for 2 machines:"
    assert found.notes[-1] == "Slots: 136 × (1 core, 0.5 T4 or 0.125 H100, 1 thread)."


def test_where_all_kinds_take_the_same_no_kind_is_asked_for(tmp_path: Path) -> None:
    found = settled(*asked(tmp_path), [measured(T4, (4, 1, 20)), measured(H100, (4, 1, 90))], [H100, T4])
    assert (found.experiment.gpus_by_kind, found.experiment.gpus_per_trial) == ({}, 0.25)
    assert found.experiment.concurrency == 32 + 8
    assert found.notes[-1] == "Slots: 40 × (1 core, 0.25 GPU, 1 thread)."


def test_a_share_that_was_given_holds_for_every_kind(tmp_path: Path) -> None:
    e, request = asked(tmp_path, 0.2, per_trial={"gpus": 0.2, "cpus": 2.0})
    found = settled(e, request, [measured(T4, (2, 2, 20)), measured(H100, (4, 2, 90))], [H100, T4]).experiment
    assert (found.gpus_by_kind, found.gpus_per_trial, found.cpus_per_trial) == ({}, 0.2, 2.0)
    assert found.concurrency == 32 + 4, "on the cores of the first there is room for 32, on those of the second for 4"


@pytest.mark.parametrize(
    ("best", "cpus", "slots"),
    [((8, 1), 1.0, 8 + 2 + 8), ((4, 1), 2.0, 4 + 1 + 4), ((3, 1), 2.6666, 3 + 0 + 3), ((1, 8), 8.0, 1 + 0 + 1)],
)
def test_on_cores_as_many_run_on_a_machine_as_was_best(
    tmp_path: Path, best: tuple[int, int], cpus: float, slots: int
) -> None:
    """Of a trial that a machine has no memory for, or bandwidth, no more run there because cores are left."""
    nodes = [node("a", 8), node("b", 2), node("c", 8, 1, "T4")]
    found = settled(*asked(tmp_path, 0.0), [measured(nodes[0], (*best, 50))], nodes)
    e = found.experiment
    assert (e.cpus_per_trial, e.threads, e.concurrency) == (cpus, best[1], slots)
    assert (e.gpus_per_trial, e.gpus_by_kind) == (0.0, {})
    assert found.notes[0] == "Measured on a (8 cores):"


def test_no_more_slots_than_trials_or_than_the_order_allows(tmp_path: Path) -> None:
    e, request = asked(tmp_path, trials=5)
    kinds = [measured(T4, (2, 1, 20)), measured(H100, (8, 1, 90))]
    assert settled(e, request, kinds, [H100, T4]).experiment.concurrency == 5
    in_order = dataclasses.replace(e, order=FIXED, lag=3, trials=100)
    assert settled(in_order, request, kinds, [H100, T4]).experiment.concurrency == 3


def test_machines_with_fewer_cores_than_gpus(tmp_path: Path) -> None:
    """Three trials on two cores have what Ray can give to all three."""
    few = node("f", 2, 3, "L4")
    e = settled(*asked(tmp_path), [measured(few, (1, 1, 20))], [few]).experiment
    assert (e.cpus_per_trial, e.concurrency) == (0.6666, 3)


def test_which_machines_are_measured() -> None:
    """The threads are chosen on the first, which has the fewest cores for a GPU."""
    nodes = [node("a", 4), H100, node("i", 96, 8, "H100"), node("k", 0, 4, "V100"), T4]
    assert [one.host for one in one_of_each(nodes, True)] == ["t", "h"]
    assert [one.host for one in one_of_each(nodes, False)] == ["i"]
    assert [one.host for one in one_of_each([*nodes, node("l", 64)], False)] == ["h"], "most cores are of such machines"
    unnamed = node("o", 16, 2)
    assert one_of_each([unnamed, node("c", 4)], True) == [unnamed]


@pytest.mark.parametrize(
    ("nodes", "on_gpus", "told"),
    [
        ([T4, node("o", 16, 2)], True, "Ray knows no kind of the GPUs of o. Start Ray there with `--resources="),
        ([node("k", 0, 4, "V100"), node("c", 4)], True, "No machine with a GPU has a core for trials."),
        ([node("k", 0)], False, "No machine of the cluster has a core for trials."),
    ],
)
def test_machines_that_cannot_be_measured(nodes: list[Node], on_gpus: bool, told: str) -> None:
    with pytest.raises(UserError, match=told.replace("(", r"\(")):
        one_of_each(nodes, on_gpus)
