"""`fedtune.load`: what was found earlier, read from its folder."""

from __future__ import annotations

from pathlib import Path

from analysis import auto, runs
from fedtune.api.auto import AutoResult, read_auto
from fedtune.api.run import Final, report
from fedtune.api.search import Result, result_of
from fedtune.record.experiment import Experiment
from fedtune.trials.driver import Outcome
from fedtune.trials.racing import is_over


def load(path: str | Path) -> Result | Final | AutoResult:
    """What `fedtune.search`, `fedtune.run` or `fedtune.auto` returned when it made the run at `path`.

    Raises `UserError` where it is no such run."""
    if auto.is_auto(path):
        return read_auto(path)
    run = runs.load(path)
    result = result_of(run.path, Outcome(finished=is_over(run.frozen, Experiment.of(run))))
    return report(result) if run.kind == "run" else result
