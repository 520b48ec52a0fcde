"""`fedtune.runs`: the runs of a folder, a row each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from analysis.reproduce.folder import ReproductionRecord, load_made
from fedtune.api.status import status
from fedtune.decisions.race import is_over
from fedtune.record.experiment import Experiment
from fedtune.record.run_directory import is_driven
from search_spaces import run_folder
from search_spaces.errors import UserError, short
from search_spaces.files import given

#: What tells a folder of ours: a run, a search over several methods, or a reproduction.
_RECORDS = (run_folder.EXPERIMENT, run_folder.AUTO, run_folder.REPRODUCTION)


def runs(folder: str | Path = "runs") -> list[dict[str, Any]]:
    """The runs in `folder`, by name: what `status` says of each, and `problem`, the sentence that it is refused with
    (None: it can be read; else only run and problem are there).

    A folder that `fedtune reproduce` made is one row of the kind `reproduction`: its name, title, state, and how many
    federations have ended. A folder without an experiment of ours is left out.

    Raises `UserError` where `folder` is no directory."""
    where = given(folder)
    if not where.is_dir():
        raise UserError(
            f"There is no folder {short(repr(str(folder)))} with runs. The first search makes runs/; --help says more."
        )
    rows: list[dict[str, Any]] = []
    for path in sorted(where.iterdir()):
        if path.is_dir() and any((path / name).exists() for name in _RECORDS):
            try:
                rows.append((_remade(path) if ReproductionRecord.is_in(path) else status(path)) | {"problem": None})
            except UserError as error:
                rows.append({"run": str(path), "problem": str(error)})
    return rows


def _remade(path: Path) -> dict[str, Any]:
    """What there is to say of a reproduction, all of whose cells are runs of their own."""
    made = load_made(path)
    planned = made.planned
    over = sum(is_over(run.frozen, Experiment.of(run)) for run in made.distinct)
    return {
        "run": str(path),
        "kind": "reproduction",
        "name": made.reproduction.name,
        "title": made.reproduction.title,
        "state": "running" if is_driven(path) else "finished" if over == planned else "resumable",
        "cells": {"over": over, "planned": planned},
        "done": made.done,
        "failed": sum(made.failed.values()),
    }
