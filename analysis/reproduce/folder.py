"""The folder in which a figure or table of a paper is made again: its record and its runs, read.

Every cell of a table is a final run below `cells/`; a heat map is one run there, a grid search. A cell that has not
been run yet, or has no finished seed, is simply not there.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated

import numpy as np

from analysis.labels import Labels
from analysis.reproduce.declaration import Place, Reproduction, Row, declared, known
from analysis.reproduce.measures import Curve
from analysis.runs import Run, load_run
from analysis.runs.conditions import show
from analysis.runs.file_record import FileRecord, FolderRecord, Must, Positive, Text, is_record
from analysis.runs.rounds import curves_by_seed
from analysis.runs.shapes import is_plain, mapping, none_or, one_of
from analysis.runs.symbolic_links import check_plain_parts
from analysis.tables.cells import Cell, Cells, OrderedCells, condition_label
from search_spaces import files, run_folder
from search_spaces.metrics import METRICS

#: Of the name of a run directory.
_LONGEST = 100


@dataclass(frozen=True)
class Setting(FileRecord):
    """On what something was measured."""

    dataset: Text
    model: Text
    clients: Positive
    rounds: Positive
    seeds: Positive

    @property
    def data(self) -> str:
        """The data set's name, or that of its file."""
        return Path(self.dataset).name

    def said(self, varied: Collection[str] = ()) -> str:
        """`digits, model cnn_small, 10 clients, 5 rounds, 3 seeds`; without the clients where they are `varied`."""
        rounds = f"{self.rounds} round{'s' * (self.rounds != 1)}"
        clients = [] if "clients" in varied else [f"{self.clients} clients"]
        seeds = f"{self.seeds} seed{'s' * (self.seeds != 1)}"
        return ", ".join([self.data, f"model {self.model}", *clients, rounds, seeds])


_NAME = Must("the name of a reproduction", lambda value: isinstance(value, str) and value in known())
_SETTING = Must("dataset, model, clients, rounds and seeds", is_record(Setting))


@dataclass(frozen=True)
class ReproductionRecord(FolderRecord):
    """What `reproduction.yaml` holds."""

    file = run_folder.REPRODUCTION
    command = "reproduce"

    reproduction: Annotated[str, _NAME]
    profile: Annotated[str, Must("small or paper", one_of("small", "paper"))]
    here: Annotated[Setting, _SETTING]
    paper: Annotated[Setting, _SETTING]
    #: The papers' signs of the columns' keys.
    symbols: Annotated[Mapping[str, str], Must("texts by key", mapping(none_or(is_plain)))]


@dataclass(frozen=True)
class _Placed(Cell):
    """A cell whose row may have another metric in the place of the table's."""

    reads: Mapping[str, str] = field(default_factory=dict)

    def values(self, metric: str, how: str = "last") -> dict[int, float]:
        return self.part.over_seeds(self.reads.get(metric, metric), how)

    def curves(self, metric: str) -> dict[int, Curve]:
        """The metric by seed and round, where it was measured."""
        lines = {number: self.part.lines.get(number, {}) for number in self.part.chosen}
        by_trial = curves_by_seed(lines, self.reads.get(metric, metric)).values()
        return {seed: list(mine[seed].items()) for mine in by_trial for seed in mine}


@dataclass(frozen=True)
class Made:
    """One reproduction, as far as it has come."""

    path: Path
    record: ReproductionRecord
    reproduction: Reproduction
    #: By row and condition, of those that have been begun.
    runs: Mapping[tuple[str, Place], Run]

    @property
    def here(self) -> Setting:
        return self.record.here

    @property
    def paper(self) -> Setting:
        return self.record.paper

    @property
    def done(self) -> int:
        """How many federations have run to their end."""
        return sum(_federations(run) for run in self.distinct)

    @property
    def distinct(self) -> list[Run]:
        """Every run once, also one that is the cell of several rows."""
        return list({run.path: run for run in self.runs.values()}.values())

    @property
    def planned(self) -> int:
        """How many runs make up the whole of it."""
        return len(self.reproduction.cells)

    @property
    def missing(self) -> int:
        """How many of them have not been begun."""
        return self.planned - len(self.distinct)

    @property
    def failed(self) -> dict[Path, int]:
        """How many trials have failed, of the runs in which any has."""
        counts = {run.path: sum(trial.state.name == "FAIL" for trial in run.frozen) for run in self.runs.values()}
        return {path: count for path, count in counts.items() if count}

    @cached_property
    def labels(self) -> Labels:
        """With the papers' signs."""
        symbols = {key: {"symbol": symbol} for key, symbol in self.record.symbols.items()}
        return Labels(parameters=symbols, markup=False)

    @cached_property
    def cells(self) -> Cells:
        """The cells of the table that have a result."""
        found = [
            _Placed(row.name, place, self.runs[row.name, place].name, self.runs[row.name, place], row.metrics)
            for row in self.reproduction.rows
            for place in self.reproduction.places
            if (row.name, place) in self.runs and self.runs[row.name, place].chosen
        ]
        runs = tuple({cell.part.path: cell.part for cell in found}.values())
        return OrderedCells(runs, tuple(self.reproduction.columns), found, tuple(self.reproduction.places))

    def values(self, row: str, place: Place, metric: str) -> dict[int, float]:
        """A cell's metric by seed, in the round in which the paper reads it."""
        cell = self.cells.of(row, place)
        how = METRICS[metric].direction if self.reproduction.readout == "best" else "last"
        return {} if cell is None else cell.values(metric, how)

    def curves(self, row: str, place: Place, metric: str) -> dict[int, Curve]:
        """A cell's metric by seed and round; empty where the cell has no result."""
        cell = self.cells.of(row, place)
        return cell.curves(metric) if isinstance(cell, _Placed) else {}

    def partitions(self, row: str, place: Place) -> dict[int, np.ndarray]:
        """The samples of every class at every client of a cell, by seed."""
        cell = self.cells.of(row, place)
        found: dict[int, np.ndarray] = {}
        if cell is not None:
            for number in cell.part.chosen:
                found |= cell.part.partition(number)
        return found

    def named(self, place: Place) -> str:
        """A condition in words, `ω = 0.1`; empty where there are no columns."""
        keys = self.reproduction.columns
        return ", ".join(condition_label(self.labels, key, value) for key, value in zip(keys, place, strict=True))

    @property
    def other_data(self) -> bool:
        """Whether the data are not the paper's."""
        return self.here.dataset != self.paper.dataset

    @property
    def heatmap(self) -> Run | None:
        """The run of a heat map, where one of its trials has a result."""
        run = next(iter(self.runs.values()), None) if self.reproduction.heatmap else None
        return run if run is not None and run.best is not None else None


def _federations(run: Run) -> int:
    done = sum(trial.state.name == "COMPLETE" for trial in run.frozen)
    return done if run.kind == "run" else done * len(run.experiment.get("seeds") or [0])


def cell_name(reproduction: Reproduction, row: Row, place: Place) -> str:
    """The name of a cell's run directory: the row's number, its method, and the condition; of a cell that all rows
    share the number 0."""
    number = 0 if reproduction.is_common(place) else reproduction.rows.index(row) + 1
    at = "".join(f"-{key}-{show(value)}" for key, value in reproduction.condition(row, place).items() if number)
    return f"{number:02d}-{row.method}{at}"[:_LONGEST]


def check_plain_made(folder: Path) -> None:
    """Raises `UserError` where something that `fedtune reproduce` uses in `folder` is a symbolic link or a device."""
    check_plain_parts(folder, (run_folder.REPRODUCTION, run_folder.LOCK, *run_folder.WRITTEN), (run_folder.CELLS,))


def load_made(folder: str | os.PathLike[str]) -> Made:
    """The reproduction in `folder`. Raises `UserError` where there is none, it holds a symbolic link, or one of its
    runs cannot be read."""
    path = files.given(folder)
    check_plain_made(path)
    record = ReproductionRecord.read(path)
    reproduction = declared(record.reproduction)
    runs: dict[tuple[str, Place], Run] = {}
    found: dict[Path, Run] = {}
    for row in reproduction.rows:
        for place in reproduction.places:
            cell = path / run_folder.CELLS / cell_name(reproduction, row, place)
            if cell not in found and cell.is_dir():
                found[cell] = load_run(cell)
            if cell in found:
                runs[row.name, place] = found[cell]
    return Made(path, record, reproduction, runs)
