"""What Ray Tune holds of the trials that have ended, in a session of many."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ray.exceptions import RayActorError

from fedtune.api.search import Result
from fedtune.execution.ray_hooks import EndedTrials


def folders(place: str | Path) -> list[str]:
    return sorted(path.name for path in Path(place).iterdir() if path.is_dir())


@pytest.mark.guard("memory and files of a search of many trials")
def test_of_ended_trials_tune_holds_neither_requests_nor_results_nor_folders(
    conduct: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them ends twice, as its process dies. Without this a search grows by 40 KiB a trial."""
    held: list[Any] = []
    copies: list[str] = []
    complete = EndedTrials.on_trial_complete

    def noted(self: EndedTrials, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        held[:], copies[:] = trials, folders(trial.remote_experiment_path)
        complete(self, iteration, trials, trial, **info)
        trial.handle_error(RayActorError())  # as where its process dies before it has said that it stopped

    monkeypatch.setattr(EndedTrials, "on_trial_complete", noted)
    values = {"trouble": "die", "flag": str(tmp_path / "died")}
    rest = {"scheduler": "none", "sampler": "random", "concurrency": 1}
    result = conduct("run", trials=4, rounds=4, values=values, **rest)
    assert result.counts == {"COMPLETE": 4}
    assert sorted(trial.status for trial in held) == ["ERROR"] + 4 * ["TERMINATED"]
    for trial in held:
        assert not (trial.config or trial.evaluated_params or trial.experiment_tag)
        assert not (trial.metric_analysis or trial.metric_n_steps) and set(trial.last_result) <= {"done", "trial_id"}
    assert len({id(trial.storage) for trial in held}) == len({id(trial.placement_group_factory) for trial in held}) == 1
    driver = Path(held[0].local_experiment_path)
    assert len(folders(driver)) == 1 and folders(driver.parent / "working_dirs") == []
    # Where they would be copied to is that one alone whose trial ran as the session began.
    assert len(copies) <= 1
