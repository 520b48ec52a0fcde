"""A run of every kind in one folder, made without training: what lists and opens runs meets all of them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from analysis.runs.mappings import read_yaml
from fedtune.record.run_directory import write_document
from search_spaces import run_folder
from tests.analysis import synthetic, varied
from tests.analysis.reproduce import folders
from tests.fedtune.played import begin, searched
from tests.security.prepared import several

#: What a run may not be selected by, and the metric of all of them.
METRIC = "val_global_accuracy"
FRESH = (10**9, 10**9 + 1, 10**9 + 2)


def write(top: Path) -> Path:
    """Searches (one seed, several, several metrics, several conditions, a requirement, a race, half-finished), a final
    run, a search over methods, and a reproduction."""
    searched(top / "one-seed", seeds=(0,))
    searched(top / "race", sampler="tpe", trials=9, budget=81, seeds=(0, 1, 2))
    searched(top / "required", require=(f"{METRIC}>=0.1",))
    begin(top / "begun", trials=7)
    synthetic.write(top / "half", trials=8, rounds=3)
    synthetic.write(top / "pareto", trials=6, rounds=3, metric=(METRIC, "bytes_up"), failures=False)
    varied.fairness(top / "conditions")
    synthetic.write(top / "final", keys=(), seeds=FRESH, kind="run", failures=False, figures=())
    auto(top / "auto")
    folders.heatmap(top / "reproduction", rounds=2)
    return top


def auto(folder: Path, names: tuple[str, ...] = ("fedavg", "fedprox"), *, fresh: bool = True, **changes: Any) -> Path:
    """A search over methods; with `fresh` their best are run on fresh seeds, and the leader's final run has ended."""
    several(folder)
    record = read_yaml(folder / run_folder.AUTO)
    methods = [{**record["methods"][0], "name": name, "title": name} for name in names]
    write_document(folder / run_folder.AUTO, {**record, "methods": methods, "fresh": 3, "final": 3, **changes})
    shutil.rmtree(folder / run_folder.SEARCHES / "fedavg")
    for number, name in enumerate(names):
        searched(folder / run_folder.SEARCHES / name, method=name, seed=number)
        if fresh:
            _final(folder / run_folder.FRESH / name, name, -0.05 * number)
    if fresh:
        _final(folder / run_folder.FINAL / names[0], names[0], 0.0)
    return folder


def _final(folder: Path, method: str, shift: float) -> None:
    synthetic.write(
        folder,
        keys=(),
        trials=1,
        seeds=FRESH,
        kind="run",
        method=method,
        shift=shift,
        failures=False,
        figures=(),
    )
