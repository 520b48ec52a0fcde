"""`experiment.yaml`: the frozen request of a run, everything that decides its numbers, and how it is placed.

This is the one declaration of what the file holds. Readers check what is there with its shape; whoever drives the run
reads all of it as a `fedtune.record.experiment.Experiment`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from analysis.estimate.prior import Prior
from analysis.runs.file_record import (
    OWN,
    Count,
    FileRecord,
    Flag,
    Must,
    Positive,
    Text,
    TextOrNothing,
    Texts,
    is_record,
)
from analysis.runs.shapes import (
    MOST_TRIALS,
    Shape,
    each,
    is_metric,
    is_number,
    is_plain,
    is_text,
    is_whole,
    mapping,
    none_or,
    one_of,
    shaped,
)
from search_spaces.parameter import Value
from search_spaces.run_folder import ARRIVAL, FIXED, TRACKERS

_VALUES = Must("a mapping of names to values", mapping(is_plain))
_POINT: Shape = {"values": _VALUES, "from": Must("text", is_text)}
_METRICS = Must("a list of metrics", lambda value: is_metric(value) or each(is_metric, 1)(value))
_MAPPING = Must("a mapping", mapping(lambda _: True))
_AMOUNT = Must("a number of at least 0", is_number(0))
_PARTS = Must("a mapping of kinds of GPU to parts of one in [0.0001, 1]", mapping(is_number(0.0001, 1)))


def _is_weight(value: Any) -> bool:
    """Whether this is a value of the model's grid and its weight."""
    return each(is_number(0), 2)(value) and len(value) == 2 and value[1] > 0


_WEIGHTS = Must("a list of values of at least 0, each with its weight, above 0", each(_is_weight, 1))


@dataclass(frozen=True)
class Learnt(FileRecord):
    """What earlier searches say of the model of the estimate (`analysis.estimate.prior`)."""

    #: Their names.
    runs: Texts
    unsaid: ClassVar[Mapping[str, Any]] = {"absolute": False}

    #: Of lengths, of noise and of what a seed does to all alike: pairs of a value and its weight.
    lengths: Annotated[tuple[Sequence[float], ...], _WEIGHTS]
    noises: Annotated[tuple[Sequence[float], ...], _WEIGHTS]
    shared: Annotated[tuple[Sequence[float], ...], _WEIGHTS]
    #: Whether those of the last are standard deviations.
    absolute: Flag = False

    @classmethod
    def of(cls, runs: Sequence[str], prior: Prior) -> Learnt:
        """The record of what these runs said."""
        kinds = (prior.lengths, prior.noises, prior.shared)
        lengths, noises, shared = (tuple([value, weight] for value, weight in kind.items()) for kind in kinds)
        return cls(tuple(runs), lengths, noises, shared, prior.absolute)

    @property
    def prior(self) -> Prior:
        """The weights by value."""
        kinds = (self.lengths, self.noises, self.shared)
        lengths, noises, shared = ({float(value): float(weight) for value, weight in kind} for kind in kinds)
        return Prior(lengths, noises, shared, self.absolute)


@dataclass(frozen=True)
class ExperimentRecord(FileRecord):
    """What `experiment.yaml` holds. A search gives every trial all of `seeds`, a race one of them
    (`fedtune.decisions.race`), and so does a search that ends with a confirmation; a final run (`kind: run`) gives
    trial i the seed `seeds[i]`."""

    gone: ClassVar[Shape] = {"prior": Must("a number in [0, 1]", is_number(0, 1))}
    unsaid: ClassVar[Mapping[str, Any]] = {
        "order": FIXED,
        "log": [],
        "storage": None,
        "learnt": None,
        "gpus_by_kind": {},
    }

    name: Text
    kind: Annotated[Literal["search", "run"], Must("search or run", one_of("search", "run"))]
    method: Text
    space: Text
    #: `small`, `paper`, or `export` for a final run.
    profile: Text
    #: Every parameter that is not searched, by key.
    values: Annotated[Mapping[str, Value], _VALUES]
    metric: Annotated[tuple[str, ...], _METRICS]
    select_on: Annotated[Literal["validation", "test"], Must("validation or test", one_of("validation", "test"))]
    trials: Annotated[int, Must(f"a whole number in [1, {MOST_TRIALS}]", is_whole(1, MOST_TRIALS))]
    rounds: Positive
    seed: Count
    seeds: Annotated[tuple[int, ...], Must("a list of whole numbers of at least 0", each(is_whole(0), 1))]
    sampler: Text
    scheduler: Text
    reduction_factor: Annotated[int, Must("a whole number of at least 2", is_whole(2))] = 3
    #: Rounds before a trial may be stopped.
    grace: Count = 1
    #: What a trial sees: in the order `fixed` what `seen` says, by `arrival` what has ended when it is proposed.
    order: Annotated[str, Must(f"{FIXED} or {ARRIVAL}", one_of(FIXED, ARRIVAL))] = FIXED
    #: In the fixed order trial n is decided by trials 0 … n - lag (`seen`), so at most `lag` run at once.
    lag: Positive = 4
    #: However long the lag, a trial sees those of the first `early` trials that are before it, except as many as run
    #: beside it; 0: the lag holds from the beginning.
    early: Count = 0
    #: Wall-clock budget in seconds.
    time: Annotated[float | None, Must("a number of seconds or null", none_or(is_number(0)))] = None
    data_dir: TextOrNothing = None
    concurrency: Positive = 1
    cpus_per_trial: Annotated[float, _AMOUNT] = 1.0
    #: Where it differs by the kind of GPU, of any kind that `gpus_by_kind` does not name.
    gpus_per_trial: Annotated[float, _AMOUNT] = 0.0
    #: The part of a GPU of each kind, as Ray names kinds, that a trial has there, where it is not everywhere the same.
    gpus_by_kind: Annotated[Mapping[str, float], _PARTS] = field(default_factory=dict)
    #: So many of the trials that run at the same time share a process.
    bundle: Positive = 1
    #: Of torch, in a trial. Sums over threads differ in their last bits, so a resumed run keeps them whatever its share
    #: of cores.
    threads: Annotated[int, Must("a whole number of at least 1", is_whole(1, 10_000))] = 1
    address: TextOrNothing = None
    #: What the first trials of a search are, in order, in place of proposals: each has `values`, a point of the space,
    #: and `from`, one line on where it comes from.
    first: Annotated[
        tuple[Mapping[str, Any], ...],
        Must("a list of points, each with `values` and `from`", each(shaped(_POINT, *_POINT))),
    ] = ()
    #: So many of the first trials are not run: their results were taken from earlier runs
    #: (`fedtune.execution.queue.Queue`).
    taken: Count = 0
    #: Seed-rounds (rounds of single federations) that a race may spend; 0: the search is none, and `trials` bounds it.
    budget: Count = 0
    #: So many federations at the end are further seeds of the configurations that may be the best
    #: (`fedtune.decisions.confirmation`), among the `trials` or within the `budget`.
    confirm: Count = 0
    #: So many of the first trials end before the first rung, and the best of these runs to its end
    #: (`fedtune.decisions.initial_design`).
    initial: Count = 0
    #: What earlier searches say of the model of the estimate, as it was when the search began
    #: (`fedtune.planning.earlier_searches`).
    learnt: Annotated[
        Learnt | None, Must("runs, lengths, noises, shared and absolute, or null", none_or(is_record(Learnt)))
    ] = None
    #: What a configuration must keep to be selected (`search_spaces.requirements`).
    require: Annotated[tuple[str, ...], Must("a list of requirements such as val_wlp>=0.3", each(is_text))] = ()
    #: Whether this search is one method's part of `fedtune auto`, which decides how many trials it gets.
    part: Flag = False
    #: Whether trials keep images of every evaluated round (`search_spaces.kept_images`).
    keep_images: Flag = False
    #: Where trials are told too (`fedtune.execution.trackers`).
    log: Annotated[tuple[str, ...], Must("a list of tensorboard, mlflow and wandb", each(one_of(*TRACKERS)))] = ()
    #: Where the run directory was mirrored when the run began (`fedtune.record.mirror`).
    storage: TextOrNothing = None
    #: How many rounds a trial had before each `fedtune extend --rounds`, oldest first; `rounds` are those of now.
    rounds_before: Annotated[tuple[int, ...], Must("a list of whole numbers of at least 1", each(is_whole(1)))] = ()
    #: For a final run: the exported file's content.
    source: Annotated[Mapping[str, Any], _MAPPING] = field(default_factory=dict)

    @property
    def named_metrics(self) -> Sequence[str]:
        return [reference.rpartition(":")[2] for reference in str(self.values.get(OWN, "")).split(",")]
