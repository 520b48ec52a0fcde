"""The frozen request of a run: everything that decides its numbers, and how it is placed on the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from analysis.runs import Run
from analysis.runs import load_run as load
from analysis.runs.experiment import ExperimentRecord
from fedtune.options import MAX_SEEDS
from fedtune.record.journal import Direction
from search_spaces import run_folder
from search_spaces.metrics import METRICS

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from search_spaces.space import Space

#: Samplers whose proposals do not depend on earlier trials.
BLIND_SAMPLERS = ("random", "grid")

#: Final runs draw their seeds from here up, searches from 0 up; no seed is in both.
FINAL_SEEDS = 1_000_000_000


class Placement(NamedTuple):
    """Where the trials of an experiment run, and how many at the same time."""

    #: None is this machine.
    address: str | None
    concurrency: int
    #: Cores and GPUs of each trial.
    cpus: float
    gpus: float
    #: Wall-clock budget in seconds.
    time: float | None = None
    #: How many trials share a process.
    bundle: int = 1
    #: GPUs of each trial on machines whose GPUs are of these kinds, in place of `gpus`.
    by_kind: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True)
class Experiment(ExperimentRecord):
    """What `experiment.yaml` holds, and what follows from it for whoever drives the run."""

    @property
    def placement(self) -> Placement:
        """How it is placed."""
        return Placement(
            self.address,
            self.concurrency,
            self.cpus_per_trial,
            self.gpus_per_trial,
            self.time,
            self.bundle,
            self.gpus_by_kind,
        )

    @property
    def gpus_in_words(self) -> str:
        """What a trial has of GPUs: `0.25 GPU`, `0.125 H100 or 0.5 T4`."""
        if not self.gpus_by_kind:
            return f"{self.gpus_per_trial:.4g} GPU"
        return " or ".join(f"{part:.4g} {kind}" for kind, part in self.gpus_by_kind.items())

    @property
    def looks_back(self) -> bool:
        """Whether a trial depends on earlier ones."""
        return self.races or looks_back(self.sampler, self.scheduler)

    @property
    def races(self) -> bool:
        """Whether every configuration begins with one seed, and further ones go to those that may be the best."""
        return self.budget > 0

    @property
    def single(self) -> bool:
        """Whether trials are single federations, some of them further seeds of a configuration: in a race, and where a
        search ends with a confirmation."""
        return self.races or self.confirm > 0

    @property
    def each(self) -> int:
        """Seeds of one trial."""
        return 1 if self.single or self.kind == "run" else len(self.seeds)

    @property
    def first_seeds(self) -> tuple[int, ...]:
        """The seeds of a new configuration's first trial."""
        return self.seeds[: self.each]

    @property
    def seed_rounds(self) -> int:
        """Rounds of single federations that are run at most."""
        return self.budget or self.to_run * self.rounds * self.each

    @property
    def to_run(self) -> int:
        """How many of the trials this search runs itself."""
        return self.trials - self.taken

    @property
    def width(self) -> int:
        """How many of them can run at the same time: of a race the whole federations that its budget pays for, as the
        slots that new configurations leave free go to further seeds."""
        return self.budget // self.rounds if self.races else self.to_run

    def seen(self, number: int) -> int:
        """In the fixed order trial `number` sees so many of the first trials: all results that were taken from earlier
        runs, those of this search up to `lag` trials before it, and of the `early` ones all but the last before it, one
        less than there are slots, half the lag."""
        slots = max(1, self.lag // 2)
        return max(0, min(number, self.taken), number - self.lag + 1, min(number - slots + 1, self.early))

    @property
    def directions(self) -> tuple[Direction, ...]:
        return tuple(METRICS[name].direction for name in self.metric)

    @property
    def signs(self) -> tuple[int, ...]:
        """+1 where more is better, -1 where less is."""
        return tuple(1 if direction == "maximize" else -1 for direction in self.directions)

    def trial_seeds(self, number: int) -> tuple[int, ...]:
        """The seeds trial `number` is simulated over. (Of single federations the study knows.)"""
        return (self.seeds[number],) if self.kind == "run" else self.seeds

    def seeds_of(self, trial: FrozenTrial) -> tuple[int, ...]:
        """What a trial is simulated over. A single federation and a final run's trial have a seed of their own."""
        own = trial.user_attrs.get("seed")
        return self.trial_seeds(trial.number) if own is None else (int(own),)

    def called(self, number: int) -> str:
        """`trial 7`, or of a final run, whose trials are the seeds of one configuration, `seed 1000000007`."""
        return f"seed {self.seeds[number]}" if self.kind == "run" else f"trial {number}"

    @classmethod
    def read(cls, folder: Path) -> Experiment:
        """The experiment of the run directory `folder`. Raises `UserError` where that is none."""
        return cls.of(load(folder))

    @classmethod
    def of(cls, run: Run) -> Experiment:
        """The experiment of a run that was read."""
        return cls.from_yaml(run.experiment, str(run.path / run_folder.EXPERIMENT))


def looks_back(sampler: str, scheduler: str) -> bool:
    """Whether a trial is proposed, or stopped, by what earlier ones did."""
    return sampler not in BLIND_SAMPLERS or scheduler != "none"


def search_seeds(seed: int, count: int) -> tuple[int, ...]:
    """The paired seeds of a search: the same for every trial, disjoint for different `seed`."""
    return tuple(seed * MAX_SEEDS + k for k in range(count))


def further_seed(seeds: tuple[int, ...], place: int) -> int:
    """The seed at `place` of a search whose first seeds are `seeds`; there are more of them than these."""
    return seeds[0] + place


def final_seeds(seed: int, count: int) -> tuple[int, ...]:
    """Seeds of a final run, which no search can have seen."""
    return tuple(FINAL_SEEDS + seed * MAX_SEEDS + k for k in range(count))


def datasets(experiment: Experiment, space: Space) -> list[str]:
    """The data sets that its federations train on: one, or those that its space compares; none of a study of the user's
    own."""
    found = space.vary["dataset"].values() if "dataset" in space.vary else [experiment.values.get("dataset")]
    return [str(one) for one in found if one is not None]
