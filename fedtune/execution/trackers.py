"""Where people watch: every trial of a search in TensorBoard, MLflow or Weights & Biases (`--log`), through the
callbacks that Ray Tune has for them.

Ray's callbacks are called from here and not by Tune: a trial of ours goes on after its process died, is a number and
not an id, and is measured in all metrics of `rounds.jsonl`, of which Tune hears only what the search selects by. They
write into the run directory on this machine: `tensorboard/0007`, `mlflow.db`, `wandb/0007`; MLFLOW_TRACKING_URI and
WANDB_MODE say otherwise, as those programs have it. What a tracker cannot do never ends a search.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from search_spaces import files, run_folder
from search_spaces.errors import UserError
from trainables.worker.rounds_jsonl import Row, read_rows

#: By the name of a tracker the package that it needs.
PACKAGES = {"tensorboard": "tensorboardX", "mlflow": "mlflow", "wandb": "wandb"}
#: The file that says how many rows of a trial have been told.
ROWS = "rows"


def check(name: str) -> None:
    """Raises `UserError` where the package of a tracker is missing."""
    package = PACKAGES[name]
    if importlib.util.find_spec(package) is None:
        fix = f"Install it: pip install {package}."
        raise UserError(f"--log {name} needs the package {package}, which is missing. {fix}")


@dataclass(eq=False)
class _Trial:
    """A trial as Ray's callbacks see one."""

    number: int
    folder: Path
    config: Mapping[str, Any]
    name: str
    #: The folder of its rounds, and how many rows of these have been told.
    recorded: Path
    told: int = 0
    evaluated_params: Mapping[str, Any] = field(init=False)
    trial_id: str = field(init=False)
    local_path: str = field(init=False)
    experiment_dir_name: str = field(init=False)

    def __post_init__(self) -> None:
        self.evaluated_params, self.local_path = self.config, str(self.folder)
        self.trial_id, self.experiment_dir_name = f"{self.name}-{self.number}", self.name

    def init_local_path(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    def __str__(self) -> str:
        return self.trial_id


class Tracker:
    """One of these for the trials of a run."""

    def __init__(self, name: str, folder: Path, say: Callable[[str], None]) -> None:
        self._name, self._folder, self._say = name, folder, say
        self._callback: Any = None
        self._trials: dict[int, _Trial] = {}
        self._broken = False

    def start(self, number: int, own: int, part: Path, values: Mapping[str, Any]) -> None:
        """Trial `number` begins or goes on, which is trial `own` of the run directory `part`."""

        def begin() -> None:
            if (top := self._folder / self._name).is_symlink():
                raise UserError(f"{top} is a symbolic link, and fedtune follows none inside a run directory")
            if self._callback is None:
                self._callback = self._made()
                self._callback.setup()
            recorded = part / run_folder.trial_folder(own)
            before = self._trials.get(number)
            folder = self._folder / self._name / f"{number:04d}"
            trial = before or _Trial(number, folder, dict(values), self._folder.name, recorded)
            trial.init_local_path()
            self._trials[number] = trial
            # What an earlier session has told stands where it told it.
            trial.told = max(trial.told, self._rows_of(trial))
            self._callback.log_trial_start(trial)

        self._guarded(begin)

    def round(self, number: int) -> None:
        """A round of the trial has been recorded."""

        def tell() -> None:
            trial = self._trials[number]
            rows = read_rows(trial.recorded / run_folder.ROUNDS, after=trial.told)
            for round_, result in sorted(_means(rows).items()):
                self._callback.log_trial_result(round_, trial, {**result, "training_iteration": round_})
            trial.told += len(rows)
            files.replace(trial.folder / ROWS, str(trial.told))

        if number in self._trials:
            self._guarded(tell)

    def end(self, number: int, failed: bool) -> None:
        """The trial has ended."""
        if number in self._trials:
            self.round(number)
            trial = self._trials.pop(number)
            self._guarded(lambda: self._callback.log_trial_end(trial, failed))

    def close(self) -> None:
        """No trial runs any more."""
        for number in list(self._trials):
            self.end(number, failed=False)
        if self._callback is not None:
            self._guarded(lambda: self._callback.on_experiment_end([]))

    def _made(self) -> Any:
        if self._name == "tensorboard":
            from ray.tune.logger import TBXLoggerCallback

            return TBXLoggerCallback()  # type: ignore[no-untyped-call]
        if self._name == "mlflow":
            from ray.air.integrations.mlflow import MLflowLoggerCallback

            uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{self._folder / run_folder.MLFLOW}"
            return MLflowLoggerCallback(tracking_uri=uri, experiment_name=self._folder.name)
        from ray.air.integrations.wandb import WandbLoggerCallback

        mode = os.environ.setdefault("WANDB_MODE", "offline")
        return WandbLoggerCallback(project="fedtune", group=self._folder.name, mode=mode)

    def _rows_of(self, trial: _Trial) -> int:
        told = trial.folder / ROWS
        return int(told.read_text()) if told.exists() else 0

    def _guarded(self, step: Callable[[], None]) -> None:
        """A tracker that fails is told of once, and is left alone from then on."""
        if self._broken:
            return
        try:
            step()
        except Exception as error:
            self._broken = True
            self._say(f"--log {self._name} ends here, the search goes on: {type(error).__name__}: {error}")


def _means(rows: list[Row]) -> dict[int, dict[str, float]]:
    """By round the mean over seeds of every metric that all of them have measured."""
    by_round: dict[int, list[Row]] = {}
    for row in rows:
        by_round.setdefault(row["round"], []).append(row)
    found: dict[int, dict[str, float]] = {}
    for round_, together in by_round.items():
        for name in together[0]:
            numbers = [value for row in together if isinstance(value := row.get(name), (int, float))]
            if name not in ("round", "seed") and len(numbers) == len(together):
                found.setdefault(round_, {})[name] = statistics.fmean(numbers)
    return found
