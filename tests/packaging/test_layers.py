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


#: A line in a module, which is a new one where it is called bad, and what is said of it.
BREACHES = [
    ("analysis/bad0.py", "import trainables.method", "analysis.bad0 -> trainables.method (l.1)"),
    ("trainables/bad1.py", "import search_spaces.run_folder", "not listed as layers:\n\n- trainables.bad1"),
    ("trainables/bad2.py", "import ray", "trainables.bad2 -> ray (l.1)"),
    (
        "trainables/methods/bad3.py",
        "def f() -> None:\n    from ray import tune",
        "trainables.methods.bad3 -> ray (l.2)",
    ),
    ("analysis/bad4.py", "import torch", "analysis.bad4 -> torch (l.1)"),
    ("search_spaces/bad5.py", "import ray.tune", "search_spaces.bad5 -> ray (l.1)"),
    ("search_spaces/bad6.py", "import fedtune", "search_spaces.bad6 -> fedtune (l.1)"),
    ("trainables/bad7.py", "import fedtune", "trainables.bad7 -> fedtune (l.1)"),
    # Rooms of one package, and modules of one room.
    (
        "trainables/building_blocks/bad8.py",
        "import trainables.methods.fedavg",
        "trainables.building_blocks.bad8 -> trainables.methods.fedavg (l.1)",
    ),
    ("trainables/kernels/bad9.py", "import trainables.models", "trainables.kernels.bad9 -> trainables.models (l.1)"),
    ("fedtune/trials/bad10.py", "import fedtune.planning.plan", "fedtune.trials.bad10 -> fedtune.planning.plan (l.1)"),
    ("analysis/runs/bad11.py", "import analysis.labels", "analysis.runs.bad11 -> analysis.labels (l.1)"),
    ("search_spaces/errors.py", "import search_spaces.space", "search_spaces.errors -> search_spaces.space (l."),
    ("analysis/runs/study.py", "import analysis.runs.run", "- .study -> .run (1 import)"),
]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the check says of the packages with all breaches."""
    folder = tmp_path_factory.mktemp("broken")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    for file, line, _ in BREACHES:
        with (folder / file).open("a") as target:
            target.write(line + "\n")
    done = lint(folder)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def test_every_contract_can_break(said: str) -> None:
    assert "0 kept, 8 broken" in said, said


@pytest.mark.parametrize("told", [told for _, _, told in BREACHES])
def test_a_breach_is_found(said: str, told: str) -> None:
    assert told in said, said


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
