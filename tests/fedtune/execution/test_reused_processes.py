"""Which trial has a process that falls free, while others are still starting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from ray.tune.experiment import Trial

from fedtune.api.search import Result
from fedtune.execution.ray_hooks import InOrder
from tests.fedtune.fake import SlowToStart


def test_the_trial_that_was_added_last_is_chosen_and_then_those_that_wait_in_their_order() -> None:
    scheduler, tune = InOrder(), mock.MagicMock()
    tune.search_alg.searcher.take_back.return_value = []
    first, second, third = (mock.Mock(trial_id=name, status=Trial.PENDING) for name in "abc")
    scheduler.on_trial_add(tune, first)
    scheduler.on_trial_add(tune, second)
    assert [scheduler.choose_trial_to_run(tune) for _ in range(2)] == [first, first]
    scheduler.on_trial_add(tune, third)
    assert [scheduler.choose_trial_to_run(tune) for _ in range(2)] == [third, first]
    first.status = third.status = Trial.RUNNING
    assert scheduler.choose_trial_to_run(tune) is second
    second.status = Trial.TERMINATED
    assert scheduler.choose_trial_to_run(tune) is None


@pytest.mark.guard("processes of Ray that are started in vain")
def test_no_process_that_starts_is_dropped_for_one_that_falls_free(
    conduct: Callable[..., Result], tmp_path: Path
) -> None:
    """Four slots of trials that take half a second, whose processes take up to three seconds more than that to start.
    Left to itself Tune drops some that are starting, and begins their trials again in others."""
    diary = tmp_path / "diary"
    values: dict[str, Any] = {"diary": str(diary), "together": 4, "sleep": 0.1}
    rest: dict[str, Any] = {"scheduler": "none", "sampler": "random", "order": "arrival", "concurrency": 4}
    result = conduct("run", trials=32, rounds=5, values=values, simulate=SlowToStart, **rest)
    assert result.counts == {"COMPLETE": 32}
    begun = Counter(diary.read_text().split())
    assert len(begun) == 4, "processes"
    assert begun.total() == 32, "trials, each begun once"
