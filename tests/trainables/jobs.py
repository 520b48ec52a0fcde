"""Trials driven by hand, without Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedtune.decisions.early_stopping import Never
from search_spaces.run_folder import ROUNDS
from tests.contracts.test_methods import untimed
from tests.fedtune.fake import Fake
from trainables.simulated_trial import SimulatedTrial
from trainables.tune import Trial
from trainables.worker.job import Ending, Job
from trainables.worker.rounds_jsonl import read_rows


def job_of(
    folder: Path,
    method: str,
    values: Any,
    seeds: tuple[int, ...] = (0,),
    metric: str = "val_global_accuracy",
    rule: Any = None,
    number: int = 0,
    **more: Any,
) -> Job:
    """A trial that is never stopped, unless a rule says when; `more` as in `Job`."""
    return Job(number, str(folder), method, values, seeds, (metric,), (1,), rule or Never(), **more)


def fake_job(folder: Path, rule: Any = None, **values: Any) -> Job:
    """A trial of four rounds and two seeds that trains nothing."""
    given = {"rounds": 4, "alpha": 0.3, "lambda": 0.7, **values}
    return job_of(folder, "fedavg", given, (0, 1), rule=rule, simulate=Fake)


def steps(trial: Trial | SimulatedTrial | Job) -> list[dict[str, Any]]:
    """What a trial, or the trial of a job, says after each round until it has ended."""
    trial = Trial({"job": trial}) if isinstance(trial, Job) else trial
    found = [trial.step()]
    while not found[-1]["done"]:
        assert len(found) < 100, "the trial did not end"
        found.append(trial.step())
    return found


def run(trial: Trial | SimulatedTrial | Job) -> Ending:
    """Runs a trial to its end."""
    ending: Ending = steps(trial)[-1]["ending"]
    return ending


def complete(trial: Trial | SimulatedTrial | Job) -> Ending:
    """Runs a trial that has all its rounds."""
    ending = run(trial)
    assert ending.stop_reason == "completed", ending.error
    return ending


def cut_off(job: Job, rounds: int) -> None:
    """Runs so many rounds of a trial, whose process then ends."""
    trial = Trial({"job": job})
    for _ in range(rounds):
        trial.step()
    trial.cleanup()


def untimed_rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of a trial, without what depends on the machine."""
    return [untimed(row) for row in read_rows(folder / ROUNDS)]
