"""A bundle of real trials in one process, driven by hand: each has its folder, its stop rule and its end."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.test_methods import values_for
from tests.trainables.jobs import job_of
from trainables.simulation import executors
from trainables.tune import Trial
from trainables.worker.job import Job
from trainables.worker.rounds_jsonl import read_rows


class After:
    """Ends a trial after so many rounds."""

    def __init__(self, round_: int) -> None:
        self.round = round_

    def stops(self, round_: int, curve: Any) -> bool:
        return round_ >= self.round

    def may_stop(self, round_: int) -> bool:
        return True


def job(folder: Path, toy: Path, number: int, rule: Any = None, **more: Any) -> Job:
    values = values_for("fedavg", toy, executor="vmap", partition="iid", rounds=3, lr=0.02 * (1 + number), **more)
    return job_of(folder / str(number), "fedavg", values, (3,), rule=rule, number=number)


def bundle(jobs: list[Job]) -> Job:
    first, *others = jobs
    return dataclasses.replace(first, beside=tuple(others))


def of_each(result: dict[str, Any]) -> dict[int, dict[str, Any]]:
    own = {0: result} if "round" in result else {}
    return own | dict(result.get("beside", ()))


def test_a_bundle_goes_round_by_round_and_whoever_stops_leaves_it(
    tmp_path: Path, toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first ends in round 1, the third cannot begin, the others run to the end; a program has all clients that are
    left."""
    programs: list[int] = []
    train_group = executors._train_group
    monkeypatch.setattr(
        executors, "_train_group", lambda tasks, drawn: programs.append(len(tasks)) or train_group(tasks, drawn)
    )
    rules: list[Any] = [After(1), None, None, None]
    jobs = [job(tmp_path, toy, n, rule, clients=4 if n != 2 else 4000) for n, rule in enumerate(rules)]
    hosted = Trial({"job": bundle(jobs)})
    results = [hosted.step() for _ in range(3)]
    assert programs == [12, 8, 8]
    assert [result["done"] for result in results] == [False, False, True]
    assert [sorted(of_each(result)) for result in results] == [[0, 1, 2, 3], [1, 3], [1, 3]]
    ends = {place: one["ending"] for result in results for place, one in of_each(result).items() if "ending" in one}
    assert {place: (end.stop_reason, end.round) for place, end in ends.items()} == {
        0: ("scheduler", 1),
        1: ("completed", 3),
        2: ("error", 0),
        3: ("completed", 3),
    }
    assert all(end.seconds > 0 for place, end in ends.items() if place != 2)
    for number, rounds in ((0, [1]), (1, [1, 2, 3]), (3, [1, 2, 3])):
        assert [row["round"] for row in read_rows(tmp_path / str(number) / "rounds.jsonl")] == rounds
    # The process is good for a trial by itself.
    hosted.reset_config({"job": job(tmp_path, toy, 5)})
    alone = [hosted.step() for _ in range(3)]
    assert [one["done"] for one in alone] == [False, False, True] and all("beside" not in one for one in alone)


def test_a_trial_of_a_bundle_goes_on_by_itself_from_its_folder(tmp_path: Path, toy: Path) -> None:
    hosted = Trial({"job": bundle([job(tmp_path, toy, number) for number in range(2)])})
    hosted.step()
    hosted.cleanup()
    other = Trial({"job": job(tmp_path, toy, 1)})
    assert [(result["round"], result["done"]) for result in (other.step(), other.step())] == [(2, False), (3, True)]
    assert [row["round"] for row in read_rows(tmp_path / "1" / "rounds.jsonl")] == [1, 2, 3]
