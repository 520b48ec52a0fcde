"""What a run needs to be repeated elsewhere: versions, revision, machine, command."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import socket
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

PACKAGES = ("fedtune", "ray", "optuna", "torch", "torchvision", "numpy", "scikit-learn")


def versions() -> dict[str, str]:
    """Of Python and of the packages whose versions can change numbers."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def git_revision() -> str | None:
    """The revision of the code that runs, with `+changes` where the work tree differs; None outside a repository."""
    here = Path(__file__).resolve().parents[2]

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(here), *words], capture_output=True, text=True, timeout=10, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    # An installed copy may lie inside somebody else's repository, whose revision says nothing about it.
    if git("ls-files", "--error-unmatch", str(Path(__file__).resolve())) is None:
        return None
    revision = git("rev-parse", "HEAD")
    changed = git("status", "--porcelain", "--untracked-files=no", "--", "fedtune", "trainables", "search_spaces", "analysis")
    return None if revision is None else revision + ("+changes" if changed else "")


def provenance(**more: Any) -> dict[str, Any]:
    """What a run needs to be repeated elsewhere, and to explain a difference if it is not repeated exactly."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "versions": versions(),
        "git": git_revision(),
        "machine": {"host": socket.gethostname(), "system": platform.platform(), "processor": _processor(), "cores": os.cpu_count()},
        **more,
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor()
