"""What a shell may complete: names that are found without loading a method, as a key that waits seconds is not used.

A function gets what has been typed of the word so far and gives all words that begin with it.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import typer

SHELLS = ("bash", "zsh", "fish")
#: What `fedtune figure` writes beside figures (`analysis.loaded.TABLES`, which loads what draws).
TABLES = ("trials", "conditions", "pivot")


def methods(incomplete: str) -> list[str]:
    """A method is called like its file."""
    return [name for name in _methods() if name.startswith(incomplete)]


def spaces(ctx: typer.Context, incomplete: str) -> list[str]:
    """The spaces of the method that was typed before."""
    from search_spaces import presets

    # Where an option waits for its value, the arguments before it are not assigned to their names yet.
    words = [ctx.params.get("method"), ctx.params.get("best"), *ctx.args]
    given = next((word for word in words if word in _methods()), None)
    found = [] if given is None else presets.names(given)
    return [name for name in dict.fromkeys(["default", *found]) if name.startswith(incomplete)]


def figures(incomplete: str) -> list[str]:
    """A figure is called like its file; tables are found in the same way."""
    return [name for name in (*_files("analysis", "figures"), *TABLES) if name.startswith(incomplete)]


def metrics(incomplete: str) -> list[str]:
    from search_spaces.metrics import METRICS

    return [name for name in METRICS if name.startswith(incomplete)]


def selectable(incomplete: str) -> list[str]:
    from fedtune.planning.selection import selectable as known

    return [name for name in known() if name.startswith(incomplete)]


def runs(incomplete: str) -> list[str]:
    """Run directories in the folder that was typed, or below it; in `runs/` where nothing was typed."""
    typed = incomplete or "runs/"
    parent, start = os.path.split(typed)
    try:
        below = sorted(entry.name for entry in os.scandir(parent or ".") if entry.is_dir() and _holds_runs(entry.path))
    except OSError:
        return []
    found = [os.path.join(parent, name) for name in below if name.startswith(start)]
    return [path if _is_run(path) else f"{path}/" for path in found]


def reproductions(incomplete: str) -> list[str]:
    """A reproduction is called like its file."""
    return [name for name in _files("analysis", "reproduce/declared", "yaml") if name.startswith(incomplete)]


def methods_and_runs(incomplete: str) -> list[str]:
    return [*methods(incomplete), *runs(incomplete)]


def _methods() -> list[str]:
    return _files("trainables", "methods")


def _files(package: str, folder: str, suffix: str = "py") -> list[str]:
    """The names of the files in a package's folder, without importing anything."""
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.origin is not None
    found = (Path(spec.origin).parent / folder).glob(f"*.{suffix}")
    return sorted(path.stem for path in found if not path.stem.startswith("_"))


def _is_run(path: str) -> bool:
    from search_spaces import run_folder

    return os.path.isfile(os.path.join(path, run_folder.EXPERIMENT))


def _holds_runs(path: str) -> bool:
    """Whether it is a run directory or has one in it."""
    try:
        return _is_run(path) or any(_is_run(entry.path) for entry in os.scandir(path) if entry.is_dir())
    except OSError:
        return False


def shells(incomplete: str) -> list[str]:
    return [name for name in SHELLS if name.startswith(incomplete)]
