"""Hyper-parameter search for federated learning. Every command of the command line is a function here.

    import fedtune
    result = fedtune.search("dfrd", space="alpha_lambda", trials=12, rounds=9)
    fedtune.export(result.folder, "best.yaml")
    final = fedtune.run("best.yaml", seeds=3)

Functions are imported when they are first used, as some of them bring torch, Ray or plotly with them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.compare import compare as compare
    from analysis.report import report as report
    from fedtune.attacking import attack as attack
    from fedtune.checkup import doctor as doctor
    from fedtune.exporting import export as export
    from fedtune.final import run as run
    from fedtune.listing import datasets as datasets
    from fedtune.listing import methods as methods
    from fedtune.listing import spaces as spaces
    from fedtune.searching import extend as extend
    from fedtune.searching import resume as resume
    from fedtune.searching import search as search
    from fedtune.watching import dashboard as dashboard
    from fedtune.watching import status as status
    from trainables.zoo import load_model as load_model

#: Where each public function lives. (A module must not bear its function's name, or importing one would hide the other.)
_PUBLIC = {
    "search": "fedtune.searching", "resume": "fedtune.searching", "extend": "fedtune.searching",
    "export": "fedtune.exporting", "run": "fedtune.final", "status": "fedtune.watching", "dashboard": "fedtune.watching",
    "report": "analysis.report", "compare": "analysis.compare",
    "methods": "fedtune.listing", "spaces": "fedtune.listing", "datasets": "fedtune.listing", "doctor": "fedtune.checkup",
    "attack": "fedtune.attacking",
    "load_model": "trainables.zoo",
}

__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'fedtune' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
