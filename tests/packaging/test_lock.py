"""Dependencies: the major versions that were tested, and a lock file whose hashes are compared."""

from __future__ import annotations

import hashlib
import importlib.metadata
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import lock
import pytest
from packaging.requirements import Requirement

from tests.packaging.test_setup import ROOT, call, checkout, script

__all__ = ["checkout"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
REQUIREMENTS = [
    Requirement(line)
    for lines in (PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"].values())
    for line in lines
]
#: Their pairs name each other exactly (see pyproject.toml).
PAIRED = {"torch", "torchvision"}
DIGEST = "ab" * 32


@pytest.mark.parametrize("requirement", [r for r in REQUIREMENTS if r.name != "fedtune"], ids=str)
def test_a_dependency_ends_where_it_was_not_tested(requirement: Requirement) -> None:
    bounded = any(part.operator == "<" for part in requirement.specifier)
    assert bounded == (requirement.name not in PAIRED)
    assert any(part.operator == ">=" for part in requirement.specifier)
    assert importlib.metadata.version(requirement.name) in requirement.specifier


def item(name: str, version: str, source: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name, "version": version}, "download_info": source}


def file(digest: str | None) -> dict[str, Any]:
    return {
        "url": "https://example.org/x.whl",
        "archive_info": {"hashes": {} if digest is None else {"sha256": digest}},
    }


@pytest.mark.parametrize("digest", [None, "", "abc", "G" * 64])
def test_a_file_without_a_hash_cannot_be_locked(digest: str | None) -> None:
    with pytest.raises(ValueError, match="no SHA-256 for a "):
        lock.lines({"install": [item("a", "1", file(digest))]})


def wheel(folder: Path) -> Path:
    path = folder / "tiny-1.0-py3-none-any.whl"
    about = "tiny-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny.py", "")
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        archive.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{about}/RECORD", "")
    return path


@pytest.mark.parametrize("same", [True, False])
def test_pip_reads_the_lines_and_compares_the_hashes(tmp_path: Path, same: bool) -> None:
    made = wheel(tmp_path)
    digest = hashlib.sha256(made.read_bytes()).hexdigest() if same else DIGEST
    (tmp_path / "locked.txt").write_text("\n".join(lock.lines({"install": [item("tiny", "1.0", file(digest))]})))
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-index", "--find-links", str(tmp_path)]
    done = subprocess.run(
        [
            *pip,
            "--no-deps",
            "--only-binary",
            ":all:",
            "--require-hashes",
            "--requirement",
            str(tmp_path / "locked.txt"),
        ],
        capture_output=True,
        text=True,
    )
    assert (done.returncode == 0) == same, done.stderr
    assert same or "DO NOT MATCH THE HASHES" in done.stderr


@pytest.fixture
def pretend(checkout: Path) -> Path:
    """A Python that makes an environment holding itself, and writes down what pip is asked for."""
    return script(
        checkout / "python",
        f"""
case "$*" in
    *"-m venv .venv"*) mkdir -p .venv/bin; cp "$0" .venv/bin/python ;;
    *" pip "*) echo "$*" >> "{checkout}/asked" ;;
    *get_path*) echo .venv/lib ;;
esac
""",
    )


def asked(folder: Path) -> list[str]:
    return (folder / "asked").read_text().splitlines()


def test_a_locked_set_up_takes_nothing_that_was_not_compared(checkout: Path, pretend: Path) -> None:
    (checkout / "locked.txt").write_text("a==1\n")
    (checkout / ".venv" / "bin").mkdir(parents=True)
    (checkout / ".venv" / "installed").touch()  # an environment that was made without
    (checkout / ".venv" / "left").touch()
    done = call(checkout, "scripts/install.sh", PYTHON=str(pretend), LOCKED="1")
    assert done.returncode == 0 and "Removing .venv" in done.stdout, done.stderr
    assert not (checkout / ".venv" / "left").exists()
    dependencies, project = asked(checkout)
    assert "--require-hashes" in dependencies and "--no-deps" in dependencies and "locked.txt" in dependencies
    assert "--no-deps" in project and "--no-build-isolation" in project
