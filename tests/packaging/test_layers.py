"""The layers hold, and the check that says so can fail."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("fedtune", "search_spaces", "trainables", "analysis")


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    code = (
        "import sys; sys.path.insert(0, '.'); from importlinter.cli import lint_imports_command; "
        "lint_imports_command(['--no-cache', '--no-logo'])"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=folder)


def test_layers() -> None:
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 kept, 0 broken" in done.stdout


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("analysis/bad.py", "import trainables.method"),
        ("trainables/bad.py", "import search_spaces.run_folder"),
        ("trainables/bad.py", "import ray"),
        ("trainables/methods/bad.py", "def f() -> None:\n    from ray import tune"),
        ("analysis/bad.py", "import torch"),
        ("search_spaces/bad.py", "import ray.tune"),
        ("search_spaces/bad.py", "import fedtune"),
        ("trainables/bad.py", "import fedtune"),
        # Rooms of one package, and modules of one room.
        ("trainables/building_blocks/bad.py", "import trainables.methods.fedavg"),
        ("trainables/kernels/bad.py", "import trainables.models"),
        ("fedtune/trials/bad.py", "import fedtune.planning.plan"),
        ("analysis/runs/bad.py", "import analysis.labels"),
        ("search_spaces/errors.py", "import search_spaces.space"),
        ("analysis/runs/study.py", "import analysis.runs.run"),
    ],
)
def test_a_breach_is_found(tmp_path: Path, file: str, line: str) -> None:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / file).open("a") as target:
        target.write(line + "\n")
    done = lint(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "0 broken" not in done.stdout and Path(file).stem in done.stdout


@pytest.mark.parametrize("package", ["search_spaces", "analysis"])
def test_the_light_packages_load_neither_torch_nor_ray(package: str) -> None:
    """Also not through somebody else's package, which import-linter does not follow."""
    code = (
        f"import importlib, pkgutil, sys, {package} as p\n"
        "for m in pkgutil.walk_packages(p.__path__, p.__name__ + '.'): importlib.import_module(m.name)\n"
        "print(sorted({'torch', 'ray'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
