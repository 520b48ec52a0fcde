"""A folder of `fedtune auto`, made up in milliseconds: searches over methods, their fresh seeds and a final run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from search_spaces import run_folder
from tests.analysis import synthetic

#: By method its title, and how much better it is than the first.
METHODS = {"dfrd": ("DFRD", 0.0), "fedavg": ("FedAvg", -0.04), "fedprox": ("FedProx", -0.12)}
FRESH = tuple(range(10**9, 10**9 + 5))
FINAL = tuple(range(2 * 10**9, 2 * 10**9 + 3))
LEFT_OUT = "its clients need models of one architecture, and rho is 10"


def write(folder: Path) -> Path:
    """All of it done: the first method leads."""
    folder.mkdir(parents=True)
    costs = {"seconds": 1.6, "seed-rounds": 2.0, "bytes": 2.4e6}
    record = {
        "version": 1,
        "name": folder.name,
        "metric": "val_global_accuracy",
        "methods": [{"name": name, "title": title, "costs": dict(costs)} for name, (title, _) in METHODS.items()],
        "excluded": [{"name": "fedkf", "why": LEFT_OUT}],
        "unit": "seed-rounds",
        "cost": "seed-rounds",
        "search_budget": 540.0,
        "fresh_budget": 135.0,
        "final_budget": 27.0,
        "least": 3,
        "equal": False,
        "rounds": 9,
        "require": [],
        "seed": 0,
        "seeds": 2,
        "fresh": len(FRESH),
        "final": len(FINAL),
    }
    (folder / run_folder.AUTO).write_text(yaml.safe_dump(record, allow_unicode=True))
    for name, (title, shift) in METHODS.items():
        search = {"keys": ("alpha", "lr", "merge_op"), "trials": 12, "title": title, "figures": ()}
        _write(folder / run_folder.SEARCHES / name, name, shift, **search)
        _write(folder / run_folder.FRESH / name, name, shift, kind="run", seeds=FRESH, title=title)
    _write(folder / run_folder.FINAL / "dfrd", "dfrd", 0.0, kind="run", seeds=FINAL, title="DFRD")
    return folder


def _write(folder: Path, method: str, shift: float, **settings: Any) -> None:
    settings = {"keys": (), "failures": settings.get("kind") != "run", "figures": (), **settings}
    synthetic.write(folder, method=method, shift=shift, **settings)
