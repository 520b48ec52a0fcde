"""Dependencies: the major versions that were tested, and a lock file whose hashes are compared."""

from __future__ import annotations

import importlib.metadata
import tomllib
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


def test_a_locked_file_is_a_line_that_pip_compares() -> None:
    """`name==version --hash=sha256:…`, as `pip install --require-hashes` reads it; the project itself is left out."""
    project = item("fedtune", "0.1.0", {"url": "file:///here", "dir_info": {"editable": True}})
    made = [item("Tiny.Package", "1.0", file(DIGEST)), project, item("a_b", "2", file(DIGEST))]
    hashed = f"--hash=sha256:{DIGEST}"
    assert lock.lines({"install": made}) == [f"a-b==2 {hashed}", f"tiny-package==1.0 {hashed}"]


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
