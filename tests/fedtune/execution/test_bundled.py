"""Searches in which several trials share a process: the record is that of trials in processes of their own, also where
trials stop early, run out of memory, or lose their process. Ray is played here, but for one search."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from fedtune.api.search import Result
from fedtune.console.progress import ProgressDisplay
from fedtune.execution.interrupts import Interrupts
from fedtune.execution.ray_hooks import SessionEnd
from fedtune.execution.ray_session import TuneSession
from fedtune.machine import cluster
from fedtune.machine.resources import Machine, Share, fit
from fedtune.machine.server_watch import ServerLoss
from tests.fedtune.conftest import frozen, start
from tests.fedtune.execution.test_placement import hungry, read, without_share
from tests.fedtune.fake import Fake
from tests.fedtune.played import asked
from tests.fedtune.queues import opened
from trainables import tune
from trainables.tune import Trial
from trainables.worker.job import Job

Conduct = Callable[..., Result]
REST: dict[str, Any] = {"trials": 12, "rounds": 9, "lag": 4}
BUNDLED: dict[str, Any] = {"concurrency": 4, "bundle": 2}


class Needy(Fake):
    """Memory does not suffice for a small alpha in round 2 the first time."""

    def step(self) -> list[dict[str, Any]]:
        had = Path(self.values["flag"]) / str(self.values["alpha"])
        if self.values["alpha"] < 0.8 and self.round == 1 and not had.exists():
            had.touch()
            raise MemoryError("no more")
        return super().step()


HERE = (cluster.Slots("here", "127.0.0.1", 8, 0, "", 16),)


def play(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    dies: int = 0,
    simulate: Any = Fake,
    machines: Sequence[cluster.Slots] = HERE,
    most: tuple[int, int] = (2, 4),
    **changes: Any,
) -> list[list[int]]:
    """Drives a search as Ray would; of the first processes `dies` end in their second round. most: of processes and
    trials at once. Returns the trials of each process, by their numbers."""
    made = start(folder, **REST | BUNDLED | changes)
    queue, watch, lost = opened(folder, made), ProgressDisplay(made, "quiet"), ServerLoss("resume")
    monkeypatch.setattr(cluster, "slot_map", lambda *_: list(machines))
    servers = mock.Mock(**{"lost.return_value": False})
    end = SessionEnd(folder, None, Interrupts(), lost)
    session = TuneSession(queue, watch, made.placement, end, servers, simulate)
    processes: dict[str, tuple[Trial, int]] = {}
    bundles: list[list[int]] = []
    while True:
        while isinstance(found := session.suggest(name := str(len(bundles))), dict):
            job: Job = found["job"]
            assert job.cpus == 0.5 or not job.beside, "a larger share is a single trial's"
            bundles.append([job.number, *(other.number for other in job.beside)])
            processes[name] = Trial({"job": job}), 0
        assert len(processes) <= most[0] and len(session._running()) <= most[1]
        held = [tune.resources({"job": process.config["job"]}).required_resources for process, _ in processes.values()]
        there = [Machine(one.cores, one.gpus) for one in machines]
        assert fit([Share(one["CPU"], one.get("GPU", 0.0)) for one in held], there)
        if not processes:
            assert session.end.failure is None and queue.finished
            return bundles
        for name, (process, rounds) in list(processes.items()):
            if int(name) < dies and rounds == 1:
                process.cleanup()
                del processes[name]
                session.on_trial_complete(name, None, error=True)
                continue
            result = process.step()
            processes[name] = process, rounds + 1
            if result["done"]:
                del processes[name]
                session.on_trial_complete(name, result)
            else:
                session.on_trial_result(name, result)


def test_a_slot_takes_a_bundle_and_the_record_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked(tmp_path / "calm", **REST)
    bundles = play(tmp_path / "run", monkeypatch)
    assert bundles[:2] == [[0, 1], [2, 3]] and sorted(itertools.chain(*bundles)) == list(range(12))
    assert max(map(len, bundles)) == 2
    record = frozen(tmp_path / "run")
    assert any(trial["state"] == "PRUNED" for trial in record), "some trials leave their bundle"
    assert record == frozen(tmp_path / "calm")


def test_on_a_cluster_a_bundle_is_on_one_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for six trials on one machine and for two on another, so that three of four do not fit anywhere."""
    order: dict[str, Any] = {"order": "arrival", "sampler": "random", "scheduler": "none"}
    machines = (cluster.Slots("one", "10.0.0.1", 3, 0, "", 6), cluster.Slots("two", "10.0.0.2", 1, 0, "", 2))
    asked(tmp_path / "calm", **REST | order)
    changes = {**order, "concurrency": 8, "bundle": 4, "address": "10.0.0.1:6379"}
    bundles = play(tmp_path / "run", monkeypatch, machines=machines, most=(3, 8), **changes)
    assert [len(bundle) for bundle in bundles[:3]] == [4, 2, 2] and max(map(len, bundles)) == 4
    assert frozen(tmp_path / "run") == frozen(tmp_path / "calm")


def test_a_trial_that_runs_out_of_memory_goes_on_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves its bundle, which goes on without it."""
    asked(tmp_path / "calm", **REST)
    (tmp_path / "flags").mkdir()
    bundles = play(tmp_path / "run", monkeypatch, simulate=Needy, values={"flag": str(tmp_path / "flags")})
    assert without_share(frozen(tmp_path / "run")) == frozen(tmp_path / "calm")
    again = [number for number in range(12) if sum(number in bundle for bundle in bundles) == 2]
    assert again and all([number] in bundles for number in again)


def test_trials_whose_process_died_go_on_by_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the one that brings it about would end the other one again and again."""
    asked(tmp_path / "calm", **REST)
    bundles = play(tmp_path / "run", monkeypatch, dies=1)
    assert bundles[0] == [0, 1] and [0] in bundles and [1] in bundles
    assert frozen(tmp_path / "run") == frozen(tmp_path / "calm")


def numbers(session: TuneSession, name: str) -> list[int]:
    """The trials of the next process."""
    job: Job = session.suggest(name)["job"]
    return [job.number, *(other.number for other in job.beside)]


def test_nothing_is_kept_of_a_process_whose_machine_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its trials are asked for again, and neither they nor its share count as taken."""
    made = dataclasses.replace(start(tmp_path / "run", **REST | BUNDLED), address="auto")
    queue, watch, lost = opened(tmp_path / "run", made), ProgressDisplay(made, "quiet"), ServerLoss("")
    monkeypatch.setattr(cluster, "slot_map", lambda *_: list(HERE))
    end = SessionEnd(tmp_path / "run", None, Interrupts(), lost)
    session = TuneSession(queue, watch, made.placement, end, mock.Mock(), Fake)
    first, second = (numbers(session, name) for name in ("first", "second"))
    monkeypatch.setattr(session._shares, "lost", lambda waiting, held, again: [*waiting])
    assert session.take_back(["first"]) == ["first"]
    assert [*session._held] == [*session._live] == ["second"]
    assert numbers(session, "third") == first != second


@pytest.mark.guard("bundles of a search on Ray itself")
def test_a_search_on_ray(conduct: Conduct, tmp_path: Path) -> None:
    asked(tmp_path / "calm", **REST)
    result = conduct("run", **REST, **BUNDLED, **hungry(tmp_path / "diary", "CPU", 0))
    assert result.finished and frozen(tmp_path / "run") == frozen(tmp_path / "calm")
    notes = read(tmp_path / "diary")
    of_process: dict[int, list[float]] = {}
    for note in notes:
        of_process.setdefault(note["process"], []).append(note["alpha"])
    assert {note["share"] for note in notes} <= {0.5, 1.0}, "a process has the cores of all of its trials"
    # In turns: the first two trials, then their next rounds.
    assert any(len({*alphas[:2]}) == 2 and {*alphas[:2]} == {*alphas[2:4]} for alphas in of_process.values())
