"""The frozen request of a run: everything that decides its numbers, and how it is placed on the machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from analysis.runs import Run
from analysis.runs import load_run as load
from fedtune.options import MAX_SEEDS
from fedtune.record.journal import Direction
from search_spaces import run_folder
from search_spaces.errors import UserError
from search_spaces.metrics import METRICS, declarations
from search_spaces.parameter import Value

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

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


#: The parameter that lists a user's own metrics, and the key under which a record says how these are declared.
OWN = "own_metrics"
#: Keys of options that are gone: records of runs that were begun with an earlier version have them.
GONE = ("prior",)
#: What records of an earlier version do not say, and mean.
UNSAID = {"order": run_folder.FIXED}


@dataclass(frozen=True)
class Experiment:
    """What `experiment.yaml` holds. A search gives every trial all of `seeds`, a race one of them
    (`fedtune.decisions.race`); a final run (`kind: run`) gives trial i the seed `seeds[i]`."""

    name: str
    kind: Literal["search", "run"]
    method: str
    space: str
    #: `small`, `paper`, or `export` for a final run.
    profile: str
    #: Every parameter that is not searched, by key.
    values: Mapping[str, Value]
    metric: tuple[str, ...]
    select_on: Literal["validation", "test"]
    trials: int
    rounds: int
    seed: int
    seeds: tuple[int, ...]
    sampler: str
    scheduler: str
    reduction_factor: int = 3
    #: Rounds before a trial may be stopped.
    grace: int = 1
    #: What a trial sees: in the order `fixed` what `seen` says, by `arrival` what has ended when it is proposed.
    order: str = run_folder.FIXED
    #: In the fixed order trial n is decided by trials 0 … n - lag (`seen`), so at most `lag` run at once.
    lag: int = 4
    #: However long the lag, a trial sees those of the first `early` trials that are before it, except as many as run
    #: beside it; 0: the lag holds from the beginning.
    early: int = 0
    #: Wall-clock budget in seconds.
    time: float | None = None
    data_dir: str | None = None
    concurrency: int = 1
    cpus_per_trial: float = 1.0
    gpus_per_trial: float = 0.0
    #: Of torch, in a trial. Sums over threads differ in their last bits, so a resumed run keeps them whatever its share
    #: of cores.
    threads: int = 1
    address: str | None = None
    #: What the first trials of a search are, in order, in place of proposals: each has `values`, a point of the space,
    #: and `from`, one line on where it comes from.
    first: tuple[Mapping[str, Any], ...] = ()
    #: So many of the first trials are not run: their results were taken from earlier runs
    #: (`fedtune.execution.queue.Queue.take_results`).
    taken: int = 0
    #: Seed-rounds (rounds of single federations) that a race may spend; 0: the search is none, and `trials` bounds it.
    budget: int = 0
    #: What a configuration must keep to be selected (`search_spaces.requirements`).
    require: tuple[str, ...] = ()
    #: Whether this search is one method's part of `fedtune auto`, which decides how many trials it gets.
    part: bool = False
    #: Whether trials keep images of every evaluated round (`search_spaces.kept_images`).
    keep_images: bool = False
    #: How many rounds a trial had before each `fedtune extend --rounds`, oldest first; `rounds` are those of now.
    rounds_before: tuple[int, ...] = ()
    #: For a final run: the exported file's content.
    source: Mapping[str, Any] = field(default_factory=dict)

    @property
    def placement(self) -> Placement:
        """How it is placed."""
        return Placement(self.address, self.concurrency, self.cpus_per_trial, self.gpus_per_trial, self.time)

    @property
    def looks_back(self) -> bool:
        """Whether a trial depends on earlier ones."""
        return self.races or looks_back(self.sampler, self.scheduler)

    @property
    def races(self) -> bool:
        """Whether trials are single federations, some of them further seeds of a configuration."""
        return self.budget > 0

    @property
    def each(self) -> int:
        """Seeds of one trial."""
        return 1 if self.races or self.kind == "run" else len(self.seeds)

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
        """The seeds trial `number` is simulated over. (Of a race the study knows.)"""
        return (self.seeds[number],) if self.kind == "run" else self.seeds

    def seeds_of(self, trial: FrozenTrial) -> tuple[int, ...]:
        """What a trial is simulated over. A race's trial and a final run's have a seed of their own."""
        own = trial.user_attrs.get("seed")
        return self.trial_seeds(trial.number) if own is None else (int(own),)

    def to_yaml(self) -> dict[str, Any]:
        """Plain data for `experiment.yaml`."""
        data: dict[str, Any] = {"version": run_folder.VERSION}
        if own := declarations(name.rpartition(":")[2] for name in str(self.values.get(OWN, "")).split(",")):
            data[OWN] = own
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            data[item.name] = (
                list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value
            )
        return data

    @classmethod
    def from_yaml(cls, data: Mapping[str, Any], where: str) -> Experiment:
        """The experiment that `to_yaml` wrote. Raises `UserError` where a field is missing or unknown."""
        rest = UNSAID | {key: value for key, value in data.items() if key not in ("version", OWN, *GONE)}
        fields = {item.name for item in dataclasses.fields(cls)}
        problems = [
            f"{where} lacks {key!r}; it was not written by fedtune, or was edited."
            for key in sorted(fields - rest.keys())
        ]
        problems += [
            f"{where} holds the unknown key {key!r}; it was not written by fedtune, or was edited."
            for key in sorted(rest.keys() - fields)
        ]
        if problems:
            raise UserError(*problems)
        tuples = {name: tuple(rest[name]) for name in ("metric", "seeds", "first", "require", "rounds_before")}
        return cls(**rest | tuples)

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
