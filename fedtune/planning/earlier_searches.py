"""What earlier searches of the same space, in the same folder, say of the model of a search's estimate.

How noisy federations are, how far a configuration tells of its neighbours, and what a seed does to all alike is a
matter of the method and its space, and earlier searches have measured it (`analysis.estimate.prior`). So a search for
one metric begins with what those say that stand in the folder of its run directory, where they searched the same
parameters within the same bounds by the same metric, whatever their data set was. It moves the estimate and its
interval. It does not move which trials there are: these follow from the request alone.

What was learnt is written into `experiment.yaml`, with the names of the runs, and is never learnt again: a search that
is resumed or extended, or whose folder is moved, says what it said. `--warm-start none` begins without.

A search of the same federations (the same in all that decides a result, and with a seed in common) is left out, as its
noise is this search's noise: nothing is counted twice. So are results that an earlier search had taken from another.
Of more than `MOST` the latest are read.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from analysis.estimate.prior import Prior, flat, learnt
from analysis.runs import Run
from analysis.runs import load_run as load
from analysis.runs.experiment import Learnt
from analysis.runs.mappings import read_json, read_yaml
from fedtune.planning.warm_start import NONE, OPTION, differences
from fedtune.record.experiment import Experiment
from search_spaces import run_folder
from search_spaces.errors import DamagedFile, UserError
from search_spaces.space import Space

#: Searches that are read at most, and federations that one of them ran to the end at least: fewer say next to nothing.
MOST, LEAST = 16, 5


def said_before(folder: Path, experiment: Experiment, space: Space, facts: Mapping[str, Any]) -> Learnt | None:
    """What the searches beside `folder`, the run directory to be made, say; None where there are none.

    facts: the hashes of the search's data set and partition, as the provenance has them."""
    if len(experiment.metric) != 1 or len(space.conditions()) > 1 or not folder.parent.is_dir():
        return None
    alike = [path for path in sorted(folder.parent.iterdir()) if path != folder and _is_alike(path, experiment, space)]
    found: dict[str, Prior] = {}
    for path in sorted(alike, key=_created, reverse=True):
        if len(found) == MOST:
            break
        run = _read(path)
        if run is not None and not _same_federations(run, experiment, facts):
            own = run.by_itself
            if own is not None and sum(own.seeds) >= LEAST:
                found[run.name] = own.belief.grid
    if not found:
        return None
    names = sorted(found)
    return Learnt.of(names, learnt([found[name] for name in names], flat(experiment.metric[0])))


def note(found: Learnt | None) -> list[str]:
    """What the user is told of it."""
    if found is None:
        return []
    listed = ", ".join(found.runs[:5]) + (f" and {len(found.runs) - 5} more" if len(found.runs) > 5 else "")
    return [
        f"What is said of the winner begins with how noisy earlier searches of this space were ({listed}); "
        f"{OPTION} {NONE} begins without."
    ]


def _is_alike(path: Path, experiment: Experiment, space: Space) -> bool:
    """Whether a folder holds a search of the same parameters, within the same bounds, by the same metric."""
    its = read_json(path / run_folder.SPACE, missing={})
    ours = space.to_json()
    if any(its.get(key) != ours[key] for key in ("method", "search")):
        return False
    asked = read_yaml(path / run_folder.EXPERIMENT, missing={})
    metric = asked.get("metric")
    return (
        asked.get("kind") == "search"
        and ([metric] if isinstance(metric, str) else metric) == list(experiment.metric)
        and asked.get("select_on") == experiment.select_on
    )


def _created(path: Path) -> tuple[str, str]:
    """When the run at `path` was begun, and its name."""
    return str(read_json(path / run_folder.PROVENANCE, missing={}).get("created")), path.name


def _read(path: Path) -> Run | None:
    """The run at `path`; None where it cannot be read: nobody asked for it, so a damaged one is none of this search's
    matters."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamagedFile)
        try:
            return load(path)
        except UserError:
            return None


def _same_federations(run: Run, experiment: Experiment, facts: Mapping[str, Any]) -> bool:
    """Whether a run may have had the very federations that this search will have."""
    seeds = {seed for seed in run.experiment.get("seeds") or [] if isinstance(seed, int)}
    return set(differences(run, experiment, facts)) <= {"seeds", "eval_test"} and bool(seeds & set(experiment.seeds))
