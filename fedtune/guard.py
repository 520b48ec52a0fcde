"""Are the three sibling packages that fedtune imports its own?

`search_spaces`, `trainables` and `analysis` are common names: another package, or a folder in the current directory,
may hide ours. This looks without importing anything, so a stranger's code does not run.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

SIBLINGS = ("search_spaces", "trainables", "analysis")


def problem() -> str | None:
    """One sentence when a sibling is missing or somebody else's, else None. The caller prints it and exits with 2.

    It is not a `UserError`, because that class lives in one of the packages in question."""
    home = Path(__file__).resolve().parent.parent
    for name in SIBLINGS:
        spec = importlib.util.find_spec(name)
        found = _folder(spec)
        if found is None:
            return f"fedtune's own package {name!r} is missing from {home}. Install fedtune again."
        if found != home / name:
            fix = "Run from another directory, or rename or remove that one."
            return f"fedtune's own package {name!r} is hidden by {found}. {fix}"
    return None


def _folder(spec: object) -> Path | None:
    """Where the package or module a spec describes stands; for a namespace package its first folder."""
    origin = getattr(spec, "origin", None)
    if origin and origin not in ("namespace", "built-in", "frozen"):
        path = Path(origin).resolve()
        return path.parent if path.name == "__init__.py" else path
    for location in getattr(spec, "submodule_search_locations", None) or ():
        return Path(location).resolve()
    return None
