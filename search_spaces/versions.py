"""Which versions of packages are installed. This module needs nothing but Python: Ray takes its code along to machines
where fedtune may not be installed (`fedtune.machine.inspection`)."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Iterable


def installed(packages: Iterable[str]) -> dict[str, str]:
    """The versions of Python and of those of these packages that are installed, by name."""
    found = {"python": platform.python_version()}
    for name in packages:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
