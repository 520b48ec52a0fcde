"""What a run directory says of a run: what was asked for, which trials there are, and what each was configured with."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from analysis.runs import race
from analysis.runs.conditions import conditions, holds
from analysis.runs.mappings import read_json, read_yaml
from analysis.runs.shapes import each, is_plain, is_whole
from search_spaces import run_folder
from search_spaces.files import shown
from search_spaces.metrics import twin

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


@dataclass(frozen=True)
class Described:
    """What was searched, and the trials as the study holds them. `analysis.runs.run.Run` is one."""

    path: Path
    experiment: Mapping[str, Any]
    space: Mapping[str, Any]
    provenance: Mapping[str, Any]
    #: Optuna's direction per objective: "maximize" or "minimize".
    directions: tuple[str, ...]
    #: Names of the metrics trials were selected on, one per objective.
    metrics: tuple[str, ...]
    frozen: Sequence[FrozenTrial] = field(repr=False)
    #: A sentence for every file that is left out, as it is damaged.
    damaged: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The folder's name now (a copied run may be renamed)."""
        return self.path.name

    @property
    def shown(self) -> str:
        """The folder as a reader would type it."""
        return shown(self.path)

    @property
    def resumed(self) -> str:
        """The folder that is gone on with, as a reader would type it: a method's part of `fedtune auto` goes on with
        the others."""
        return shown(self.path.parent.parent) if self.experiment.get("part") else self.shown

    @property
    def title(self) -> str:
        """The space's title, else the request's, else the folder's name."""
        return str(self.space.get("title") or self.experiment.get("title") or self.name)

    @property
    def method(self) -> str:
        return str(self.experiment.get("method") or self.space.get("method") or "")

    @property
    def method_title(self) -> str:
        """The method as people write it, such as FedMD-CG; its key where that was not recorded."""
        return str(self.provenance.get("method_title") or self.method)

    @property
    def kind(self) -> str:
        """`search` (trials are configurations) or `run` (final runs: trials are seeds of one configuration)."""
        return str(self.experiment.get("kind") or "search")

    @property
    def sampler(self) -> str:
        return str(self.experiment.get("sampler") or "")

    @property
    def raced(self) -> bool:
        """Whether trials are single federations, some of them further seeds of a configuration."""
        return race.races(self.experiment)

    def federations(self, number: int) -> list[int]:
        """In a race the completed trials of the configuration of a trial; else the trial itself."""
        return race.federations(self.experiment, self.frozen, number)

    @property
    def taken(self) -> int:
        """How many of the first trials were not run here: their results were taken from earlier runs."""
        found = self.experiment.get("taken")
        return found if isinstance(found, int) else 0

    def origin(self, trial: FrozenTrial) -> str:
        """Where a trial's values come from, such as `the paper's values`; empty where the sampler proposed them."""
        return " ".join(str(trial.user_attrs.get("from") or "").split())[:200]

    def computed(self, number: int) -> Mapping[str, Any]:
        """With what a trial was computed (`created`, `versions`, `git`, `machine`): the run's own provenance, or that
        of the earlier run whose result it is."""
        if number < self.taken:
            for part in self.provenance.get("taken") or []:
                if isinstance(part, Mapping) and number in (part.get("trials") or []):
                    return part
        return self.provenance

    @cached_property
    def varied(self) -> Sequence[Mapping[str, Any]]:
        """The conditions of the experiment as space.json describes them (keys, symbols, values)."""
        return [dict(item) for item in self.space.get("vary") or []]

    @cached_property
    def conditions(self) -> Sequence[Mapping[str, Any]]:
        """The conditions that trials were begun under, in the order of the space; one empty condition where nothing is
        varied."""
        return conditions(self.varied, self.frozen)

    @property
    def crossed(self) -> bool:
        """Whether there are trials under more than one condition."""
        return len(self.conditions) > 1

    def within(self, condition: Mapping[str, Any]) -> Self:
        """The part of the run that is under a condition: its trials, with the numbers they have."""
        kept = [trial for trial in self.frozen if holds(condition, trial.params)]
        return dataclasses.replace(self, frozen=kept)

    def trial(self, number: int) -> FrozenTrial:
        """The trial of that number."""
        return self._by_number[number]

    @cached_property
    def _by_number(self) -> Mapping[int, FrozenTrial]:
        return {trial.number: trial for trial in self.frozen}

    @cached_property
    def searched(self) -> Sequence[Mapping[str, Any]]:
        """The searched parameters as space.json describes them (keys, symbols, bounds, grids)."""
        listed = [dict(item) for item in self.space.get("search") or []]
        known = {item["key"] for item in (*listed, *self.varied)}
        # Children of a choice, or a study without its space.json: only the trials tell of these.
        for trial in self.frozen:
            for key, distribution in trial.distributions.items():
                if key not in known:
                    known.add(key)
                    listed.append(
                        {
                            "key": key,
                            "kind": "choice" if hasattr(distribution, "choices") else "real",
                            "log": getattr(distribution, "log", False),
                        }
                    )
        return listed

    @cached_property
    def keys(self) -> Sequence[str]:
        """Keys of the searched parameters that occur in at least one trial, in the space's order."""
        present = {key for trial in self.frozen for key in trial.params}
        return [item["key"] for item in self.searched if item["key"] in present]

    @property
    def fixed(self) -> dict[str, Any]:
        return dict(self.space.get("fixed") or self.space.get("fix") or {})

    @property
    def selects_on_test(self) -> bool:
        """True where trials were chosen by a metric of the test data."""
        return self.kind != "run" and any(not m.startswith("val_") and twin(m) != m for m in self.metrics)

    @property
    def maximise(self) -> bool:
        """Whether the first objective is better when larger."""
        return self.directions[0] == "maximize"

    def parameters(self, number: int) -> dict[str, Any]:
        """The searched values of a trial, and its condition, by key."""
        return dict(self.trial(number).params)

    def config(self, number: int) -> dict[str, Any]:
        """Every parameter of a trial, searched and fixed; from its config.yaml, the request and the study, of which the
        last two are believed, as a part of a config.yaml looks like a whole one."""
        stored = read_yaml(self.path / run_folder.trial_folder(number) / run_folder.CONFIG, missing={})
        inner = stored.get("values", stored) if isinstance(stored.get("values", stored), dict) else stored
        known = {key: value for key, value in inner.items() if isinstance(key, str) and is_plain(value)}
        searched = {name.rsplit(".", 1)[-1]: value for name, value in self.parameters(number).items()}
        values = self.experiment.get("values") or {}
        return self.fixed | known | {key: values[key] for key in values if key not in searched} | searched

    def partition(self, number: int) -> dict[int, np.ndarray]:
        """Samples of every class at every client, (clients, classes), by seed; empty where it was not recorded."""
        stored = read_json(self.path / run_folder.trial_folder(number) / run_folder.PARTITION, missing={})
        counts = {int(k): v for k, v in stored.items() if k.isascii() and k.lstrip("-").isdigit() and _is_table(v)}
        return {seed: np.asarray(rows, dtype=np.int64) for seed, rows in counts.items()}


#: Rows of equal length, of numbers of samples.
_rows = each(each(is_whole(0), 1), 1)


def _is_table(value: object) -> bool:
    return _rows(value) and isinstance(value, list) and len({len(row) for row in value}) == 1
