#!/usr/bin/env python3
"""Writes locked.txt, for `make demo LOCKED=1`: version and hash of every file that an installation of .venv would take.

    .venv/bin/python scripts/lock.py            # asks pip, writes locked.txt

pip resolves the versions that are installed in .venv anew, without installing anything, and its report names the files
it would take, wheels only: what is built from source would fetch files of its own. They are those for this platform and
Python, from this registry, which is why the file is not part of the project. Uses the standard library only.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TARGET = "locked.txt"
#: What hatchling needs for an editable installation; without build isolation pip does not fetch it by itself.
EDITABLE = "editables>=0.3"
HEAD = """\
# Made by `make lock` with {python} on {platform}. `make install LOCKED=1` installs these files and no others:
# pip compares the hash of every file before it is used.
"""


def main() -> int:
    try:
        found = lines(report())
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    head = HEAD.format(python=f"Python {platform.python_version()}", platform=platform.platform())
    temporary = ROOT / f"{TARGET}.tmp"
    temporary.write_text(head + "\n".join(found) + "\n", encoding="utf-8")
    os.replace(temporary, ROOT / TARGET)
    print(f"{TARGET}: {len(found)} files. Install them with `make demo LOCKED=1`.")
    return 0


def report() -> dict[str, Any]:
    """What pip would install, as its report says it. Raises `ValueError` where pip fails."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    with tempfile.TemporaryDirectory(prefix="fedtune-lock-") as folder:
        place = Path(folder)
        have = subprocess.run([*pip, "freeze", "--exclude-editable"], capture_output=True, text=True, check=True).stdout
        # A version that came from a file or a repository has no line of the form name==version and is resolved anew.
        (place / "have.txt").write_text("".join(line + "\n" for line in have.splitlines() if " @ " not in line))
        asked = ["--constraint", str(place / "have.txt"), "--report", str(place / "report.json"), *build, EDITABLE]
        words = [
            *pip,
            "install",
            "--quiet",
            "--dry-run",
            "--ignore-installed",
            "--only-binary",
            ":all:",
            *asked,
            "--editable",
            f"{ROOT}[dev]",
        ]
        if subprocess.run(words, check=False).returncode:
            raise ValueError("pip found no files for what is installed in .venv; its message stands above.")
        found: dict[str, Any] = json.loads((place / "report.json").read_text(encoding="utf-8"))
        return found


def lines(report: dict[str, Any]) -> list[str]:
    """`name==version --hash=sha256:…` of every file of the report but the project itself, sorted. Raises `ValueError`
    where a file has no such hash, or there is none."""
    found = []
    for item in report["install"]:
        name, source = normalised(item["metadata"]["name"]), item["download_info"]
        if "dir_info" in source:
            continue
        digest = source.get("archive_info", {}).get("hashes", {}).get("sha256", "")
        if not re.fullmatch("[0-9a-f]{64}", digest):
            raise ValueError(f"The registry gives no SHA-256 for {name} ({source.get('url')}), so it cannot be locked.")
        found.append(f"{name}=={item['metadata']['version']} --hash=sha256:{digest}")
    if not found:
        raise ValueError("pip's report names no file to install.")
    return sorted(found)


def normalised(name: str) -> str:
    """A package's name in the one form that registries compare."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    sys.exit(main())
