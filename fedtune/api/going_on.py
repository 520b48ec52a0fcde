"""Of the runs in a folder of several, those that are to go on."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from analysis.runs import Run
from fedtune.api.search import complete
from fedtune.decisions.race import is_over
from fedtune.execution.outcome import damaged
from fedtune.record.experiment import Experiment
from search_spaces.space import Space


def going_on(runs: Iterable[Run], address: str | None) -> Iterator[tuple[Run, Experiment, Space]]:
    """Those that are half-finished, and finished ones with damaged rows, which are computed again; each with its
    complete experiment, placed at `address`, and its space. Raises `UserError` where a run cannot be read."""
    for run in runs:
        begun = Experiment.of(run)
        whole = complete(run.path, dataclasses.replace(begun, address=address))
        if not is_over(run.frozen, begun) or damaged(run.path, begun, run.frozen):
            yield run, *whole
