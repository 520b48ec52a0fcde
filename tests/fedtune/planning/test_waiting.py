"""What is said, and estimated, of trials that wait for one another."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from fedtune.machine.resources import Machine
from fedtune.options import SearchRequest
from fedtune.planning.estimate import START_UP, estimate
from fedtune.planning.plan import plan
from fedtune.planning.waiting import turns, waiting_notes
from tests.fedtune.conftest import experiment


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"concurrency": 2}, None),
        ({"early": 0}, None),
        ({}, "The first 10 trials run two at a time, as every result counts while little is known; then 3 do. With "
             "--lag 4, 3 run from the beginning; it changes what is proposed."),
        ({"trials": 10}, "Trials run two at a time, as every result counts while little is known. With --lag 4, 3 run "
                         "from the beginning; it changes what is proposed."),
        ({"taken": 5, "trials": 35},
         "The first 5 trials run two at a time, as every result counts while little is known; then 3 do. "
         "With --lag 4, 3 run from the beginning; it changes what is proposed."),
        ({"taken": 8, "trials": 38}, None),
        ({"early": 8, "sampler": "random", "scheduler": "none"}, None),
    ],
)  # fmt: skip
def test_that_a_search_begins_slowly_is_said_where_more_could_run(
    tmp_path: Path, given: dict[str, Any], words: str | None
) -> None:
    e = experiment(tmp_path, **{"concurrency": 3, "early": 8, "trials": 30, **given})
    expected = [] if words is None else [words]
    assert waiting_notes(e, None) == expected == waiting_notes(e, Machine(cores=3, gpus=0))


def test_where_the_lag_holds_trials_back_too_one_lag_is_advised(tmp_path: Path) -> None:
    e = experiment(tmp_path, concurrency=4, lag=4, early=8, trials=30)
    slow, held = waiting_notes(e, Machine(cores=6, gpus=0))
    assert slow == "The first 10 trials run two at a time, as every result counts while little is known."
    assert held.endswith("More run with --lag 6.")


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
            if e.looks_back and e.seen(following) > ended:
                break
            following += 1
        ended, second = following, second + 1
    assert second == expected


def test_a_dry_run_allows_for_it(toy: Path, tmp_path: Path) -> None:
    given = {"model": "mlp", "local_steps": 1, "clients": 3}
    planned = plan(SearchRequest("fedavg", dataset=str(toy), set=given, name=tmp_path / "made", trials=12, rounds=4))
    wide = dataclasses.replace(planned, experiment=dataclasses.replace(planned.experiment, concurrency=4))
    found = estimate(wide)
    assert found.at_most == pytest.approx(START_UP + 5 * 4 * found.round_seconds)
