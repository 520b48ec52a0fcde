"""What a run directory says of a run beside its trials: its experiment.yaml, space.json and provenance.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from analysis.runs import race
from analysis.runs.experiment import Learnt
from search_spaces.files import shown


@dataclass(frozen=True)
class Record:
    """The files of one run directory that are written when it begins; names of fields are in
    `search_spaces.run_folder`."""

    path: Path
    experiment: Mapping[str, Any]
    space: Mapping[str, Any]
    provenance: Mapping[str, Any]
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
        """The space's title, else the folder's name."""
        return str(self.space.get("title") or self.name)

    @property
    def method(self) -> str:
        """The method's key."""
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
        """Who proposed the configurations of a search."""
        return str(self.experiment.get("sampler") or "")

    @property
    def raced(self) -> bool:
        """Whether the run is a race."""
        return race.races(self.experiment)

    @property
    def single(self) -> bool:
        """Whether trials are single federations, some of them further seeds of a configuration."""
        return race.single(self.experiment)

    @property
    def taken(self) -> int:
        """How many of the first trials were not run here: their results were taken from earlier runs."""
        found = self.experiment.get("taken")
        return found if isinstance(found, int) else 0

    def computed(self, number: int) -> Mapping[str, Any]:
        """With what a trial was computed (`created`, `versions`, `git`, `machine`): the run's own provenance, or that
        of the earlier run whose result it is."""
        if number < self.taken:
            for part in self.provenance.get("taken") or []:
                if isinstance(part, Mapping) and number in (part.get("trials") or []):
                    return part
        return self.provenance

    @cached_property
    def learnt(self) -> Learnt | None:
        """What was known from earlier searches when this one began."""
        found = self.experiment.get("learnt")
        return None if found is None else Learnt.of_checked(found)

    @cached_property
    def varied(self) -> Sequence[Mapping[str, Any]]:
        """The conditions of the experiment as space.json describes them (keys, symbols, values)."""
        return [dict(item) for item in self.space.get("vary") or []]

    @property
    def fixed(self) -> dict[str, Any]:
        """The values that every trial has."""
        return dict(self.space.get("fixed") or {})
