"""That the replays notice wrong steps: every mutant is made in a copy of `trainables`, and its replay must fail there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import trainables
from tests.trainables.methods.replays.mutants import MUTANTS, REPLAYS, Mutant
from trainables import registry

PACKAGE = Path(trainables.__file__ or "").parent
FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[3]


def replay(copy: Path, test: str) -> subprocess.CompletedProcess[str]:
    """Runs a replay on the packages in `copy`."""
    name, _, case = test.partition("::")
    path = FOLDER.relative_to(ROOT) / f"test_replay_{name}.py"
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", f"{path}::{case}"],
                          cwd=copy, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of `trainables`, and of the tests that replays need, in a folder of its own."""
    skipped = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, tmp_path / "trainables", ignore=skipped)
    shutil.copytree(FOLDER, tmp_path / FOLDER.relative_to(ROOT), ignore=skipped)
    for folder in [ROOT / "tests", *[parent for parent in FOLDER.parents if ROOT / "tests" in parent.parents]]:
        for file in (*folder.glob("__init__.py"), *folder.glob("conftest.py"), *folder.glob("toy.py")):
            shutil.copy(file, tmp_path / file.relative_to(ROOT))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def found(mutant: Mutant, package: Path) -> Path:
    """The only file that has the mutant's piece, once."""
    places = [path for path in sorted(package.rglob(mutant.file)) if mutant.old in path.read_text(encoding="utf-8")]
    count = sum(path.read_text(encoding="utf-8").count(mutant.old) for path in places)
    assert count == 1, f"{mutant.old!r} stands {count} times in {mutant.file}; mend the mutant"
    return places[0]


def test_every_method_has_a_replay_that_exists() -> None:
    assert REPLAYS.keys() == registry.methods().keys()
    for test in {*REPLAYS.values(), *(mutant.test for mutant in MUTANTS)}:
        name, _, case = test.partition("::")
        assert re.search(rf"^def {case.partition('[')[0]}\(", (FOLDER / f"test_replay_{name}.py").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"{m.test.partition('::')[0]}-{m.what}")
def test_mutants_are_still_found(mutant: Mutant) -> None:
    assert found(mutant, PACKAGE) and mutant.old != mutant.new


@pytest.mark.slow
@pytest.mark.parametrize("test", sorted({mutant.test for mutant in MUTANTS} | set(REPLAYS.values())))
def test_replays_pass_on_an_unchanged_copy(test: str, copy: Path) -> None:
    done = replay(copy, test)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"{m.test.partition('::')[0]}-{m.what}")
def test_replays_fail_on_mutants(mutant: Mutant, copy: Path) -> None:
    changed = found(mutant, copy / "trainables")
    changed.write_text(changed.read_text(encoding="utf-8").replace(mutant.old, mutant.new), encoding="utf-8")
    done = replay(copy, mutant.test)
    assert done.returncode == 1, f"survived: {done.stdout}"
    # By a number that differs, and not because the changed code cannot run.
    assert re.search(r"^E +AssertionError: .*differs by", done.stdout, re.MULTILINE), done.stdout
