"""A stranger's package that hides one of ours is named in one sentence, and its code does not run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fedtune import guard

ROOT = Path(guard.__file__).resolve().parent.parent
ASK = "from fedtune import guard; print(guard.problem())"


def ask(folder: Path) -> str:
    """What the guard says when `folder` stands first on the path."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import fedtune; sys.path.insert(0, {str(folder)!r}); {ASK}"
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=folder
    ).stdout.strip()


def test_ours_are_ours(tmp_path: Path) -> None:
    assert guard.problem() is None
    assert ask(tmp_path) == "None"


@pytest.mark.parametrize("name", guard.SIBLINGS)
@pytest.mark.parametrize("form", ["file", "package", "compiled"])
def test_a_strangers_package_is_named(tmp_path: Path, name: str, form: str) -> None:
    bomb = "raise SystemExit('a stranger ran')\n"
    if form == "file":
        hiding = tmp_path / f"{name}.py"
        hiding.write_text(bomb)
    elif form == "package":
        hiding = tmp_path / name
        hiding.mkdir()
        (hiding / "__init__.py").write_text(bomb)
    else:
        hiding = tmp_path / f"{name}.so"
        hiding.write_bytes(b"")
    assert (
        ask(tmp_path) == f"fedtune's own package {name!r} is hidden by {hiding}. "
        "Run from another directory, or rename or remove that one."
    )


def test_a_folder_without_init_does_not_hide_a_package(tmp_path: Path) -> None:
    """Python itself prefers a regular package further down the path to a plain folder."""
    (tmp_path / "analysis").mkdir()
    assert ask(tmp_path) == "None"


def test_a_missing_sibling_is_named(tmp_path: Path) -> None:
    (tmp_path / "fedtune").mkdir()
    (tmp_path / "fedtune" / "__init__.py").write_text("")
    (tmp_path / "fedtune" / "guard.py").write_text(Path(guard.__file__).read_text(encoding="utf-8"), encoding="utf-8")
    # -S: without site-packages, where the editable install would offer the real ones.
    said = subprocess.run(
        [sys.executable, "-S", "-c", ASK], capture_output=True, text=True, check=True, cwd=tmp_path
    ).stdout.strip()
    assert said == f"fedtune's own package 'search_spaces' is missing from {tmp_path}. Install fedtune again."
