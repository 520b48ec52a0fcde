"""A run directory, read.

What is exported is imported when it is first used: a run is read with pandas, which lists of methods and spaces, and
whoever shows a condition as it is typed, do not wait for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.runs.run import Run as Run
    from analysis.runs.run import when as when
    from analysis.runs.run_directory import Paths as Paths
    from analysis.runs.run_directory import load_run as load_run
    from analysis.runs.run_directory import load_runs as load_runs
    from analysis.runs.run_directory import run_names as run_names

_EXPORTED = {
    "Run": "analysis.runs.run",
    "when": "analysis.runs.run",
    "Paths": "analysis.runs.run_directory",
    "load_run": "analysis.runs.run_directory",
    "load_runs": "analysis.runs.run_directory",
    "run_names": "analysis.runs.run_directory",
}


def __getattr__(name: str) -> Any:
    if name in _EXPORTED:
        return getattr(importlib.import_module(_EXPORTED[name]), name)
    raise AttributeError(f"module 'analysis.runs' has no attribute {name!r}")
