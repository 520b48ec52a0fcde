"""`fedtune.runs`: the runs of a folder, a row each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedtune.api.status import status
from search_spaces import run_folder
from search_spaces.errors import UserError, short
from search_spaces.files import given


def runs(folder: str | Path = "runs") -> list[dict[str, Any]]:
    """The runs in `folder`, by name: what `status` says of each, and `problem`, the sentence that it is refused with
    (None: it can be read; else only run and problem are there).

    A folder without an experiment of ours is left out. Raises `UserError` where `folder` is no directory."""
    where = given(folder)
    if not where.is_dir():
        raise UserError(
            f"There is no folder {short(repr(str(folder)))} with runs. The first search makes runs/; --help says more."
        )
    rows: list[dict[str, Any]] = []
    for path in sorted(where.iterdir()):
        if path.is_dir() and any((path / name).exists() for name in (run_folder.EXPERIMENT, run_folder.AUTO)):
            try:
                rows.append(status(path) | {"problem": None})
            except UserError as error:
                rows.append({"run": str(path), "problem": str(error)})
    return rows
