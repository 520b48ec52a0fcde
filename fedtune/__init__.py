"""Hyper-parameter search for federated learning. Every command of the command line is a function here.

    import fedtune
    result = fedtune.search("dfrd", space="alpha_lambda", trials=12, rounds=9)
    fedtune.export(result.folder, "best.yaml")
    final = fedtune.run("best.yaml", seeds=3)

Functions are imported when they are first used, as some of them bring torch, Ray or plotly with them.
"""

from __future__ import annotations

import importlib
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.report import report as report
    from analysis.tables.compare import compare as compare
    from fedtune.api.attack import attack as attack
    from fedtune.api.auto import auto as auto
    from fedtune.api.catalogue import datasets as datasets
    from fedtune.api.catalogue import methods as methods
    from fedtune.api.catalogue import metrics as metrics
    from fedtune.api.catalogue import spaces as spaces
    from fedtune.api.doctor import doctor as doctor
    from fedtune.api.export import export as export
    from fedtune.api.extend import extend as extend
    from fedtune.api.figure import figure as figure
    from fedtune.api.findings import load_model as load_model
    from fedtune.api.load import load as load
    from fedtune.api.new import new as new
    from fedtune.api.objective import objective as objective
    from fedtune.api.reproduce import reproduce as reproduce
    from fedtune.api.resume import resume as resume
    from fedtune.api.run import run as run
    from fedtune.api.search import search as search
    from fedtune.api.status import dashboard as dashboard
    from fedtune.api.status import runs as runs
    from fedtune.api.status import status as status

#: Where each public function lives. A module may bear its function's name, as none of them stands at this level.
_PUBLIC = {
    "search": "fedtune.api.search",
    "auto": "fedtune.api.auto",
    "load": "fedtune.api.load",
    "resume": "fedtune.api.resume",
    "extend": "fedtune.api.extend",
    "export": "fedtune.api.export",
    "run": "fedtune.api.run",
    "runs": "fedtune.api.status",
    "status": "fedtune.api.status",
    "dashboard": "fedtune.api.status",
    "figure": "fedtune.api.figure",
    "report": "analysis.report",
    "compare": "analysis.tables.compare",
    "new": "fedtune.api.new",
    "objective": "fedtune.api.objective",
    "reproduce": "fedtune.api.reproduce",
    "methods": "fedtune.api.catalogue",
    "spaces": "fedtune.api.catalogue",
    "datasets": "fedtune.api.catalogue",
    "metrics": "fedtune.api.catalogue",
    "doctor": "fedtune.api.doctor",
    "attack": "fedtune.api.attack",
    "load_model": "fedtune.api.findings",
}

__all__ = sorted(_PUBLIC)

# In a notebook Optuna and Ray import a progress bar of tqdm's that nothing here draws; it asks for ipywidgets.
warnings.filterwarnings("ignore", message="IProgress not found")


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'fedtune' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
