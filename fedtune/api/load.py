"""`fedtune.load`: what was found earlier, read from its folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import overload

from analysis import loaded, runs
from analysis.auto.record import AutoRecord
from analysis.loaded import Loaded
from analysis.reproduce.folder import ReproductionRecord, load_made
from analysis.reproduce.joint_table import Joined, joined
from fedtune.api.auto import AutoResult, read_auto
from fedtune.api.run import Final, report
from fedtune.api.search import Result, result_of
from fedtune.decisions.race import is_over
from fedtune.execution.driver import Outcome
from fedtune.record.experiment import Experiment


@overload
def load(path: str | Path) -> Result | Final | AutoResult | Joined: ...
@overload
def load(path: list[str] | list[Path] | tuple[str | Path, ...]) -> Loaded | Joined: ...


def load(
    path: str | Path | list[str] | list[Path] | tuple[str | Path, ...],
) -> Result | Final | AutoResult | Loaded | Joined:
    """What `fedtune.search`, `fedtune.run` or `fedtune.auto` returned when it made the run at `path`. Of several runs
    their figures and tables by name, see `analysis.loaded.Loaded`; those of a single one are had in the same way.
    Of a table that `fedtune.reproduce` made, alone or on several data sets, see
    `analysis.reproduce.joint_table.Joined`.

    Raises `UserError` where it is no such run."""
    if not isinstance(path, (str, os.PathLike)):
        return loaded.load(path)
    if ReproductionRecord.is_in(path):
        return joined([load_made(path)])
    if AutoRecord.is_in(path):
        return read_auto(path)
    run = runs.load_run(path)
    result = result_of(run.path, Outcome(finished=is_over(run.frozen, Experiment.of(run))))
    return report(result) if run.kind == "run" else result
