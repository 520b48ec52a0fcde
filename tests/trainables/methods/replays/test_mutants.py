"""That the replays notice wrong steps: every mutant is made in a copy of `trainables`; its replay must fail there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import trainables
from tests.trainables.methods.replays.mutants import MUTANTS, REPLAYS, Mutant
from trainables import registry

PACKAGE = Path(trainables.__file__ or "").parent
FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[3]


#: Runs replays one after the other, each in a process of its own that starts with the libraries imported, as importing
#: them takes longer than most replays. A line of input names a folder and a test, a line of output the exit status.
RUNNER = """
import json, os, sys
import numpy, pytest, safetensors.torch, torch
for line in sys.stdin:
    folder, test = json.loads(line)
    child = os.fork()
    if not child:
        os.chdir(folder)
        sys.path.insert(0, folder)
        output = os.open("output.txt", os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        status = pytest.main(["-q", "-x", "-p", "no:cacheprovider", test])
        sys.stdout.flush()
        os._exit(status)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@dataclass(frozen=True)
class Replays:
    """A running `RUNNER`."""

    process: subprocess.Popen[str]

    def run(self, copy: Path, test: str) -> tuple[int, str]:
        """A replay on the packages in `copy`: pytest's exit status and output."""
        assert self.process.stdin is not None and self.process.stdout is not None
        name, _, case = test.partition("::")
        path = FOLDER.relative_to(ROOT) / f"test_replay_{name}.py"
        print(json.dumps([str(copy), f"{path}::{case}"]), file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline()), (copy / "output.txt").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def replays(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replays]:
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", RUNNER],
        cwd=tmp_path_factory.mktemp("runner"),
        env=environment,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        yield Replays(process)
        assert process.stdin is not None
        process.stdin.close()


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


def pattern(piece: str) -> re.Pattern[str]:
    """The piece however its lines are broken: after an opening bracket, before a closing one, at a space."""
    text = re.escape(piece).replace(r"\ ", r"\s+").replace(r"\(", r"\(\s*").replace(r"\)", r",?\s*\)")
    return re.compile(text)


def found(mutant: Mutant, package: Path) -> Path:
    """The only file that has the mutant's piece, once."""
    files = sorted(package.rglob(mutant.file))
    places = [path for path in files for _ in pattern(mutant.old).finditer(path.read_text(encoding="utf-8"))]
    assert len(places) == 1, f"{mutant.old!r} stands {len(places)} times in {mutant.file}; mend the mutant"
    return places[0]


def test_every_method_has_a_replay_that_exists() -> None:
    assert REPLAYS.keys() == registry.methods().keys()
    for test in {*REPLAYS.values(), *(mutant.test for mutant in MUTANTS)}:
        name, _, case = test.partition("::")
        assert re.search(
            rf"^def {case.partition('[')[0]}\(",
            (FOLDER / f"test_replay_{name}.py").read_text(encoding="utf-8"),
            re.MULTILINE,
        )


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"{m.test.partition('::')[0]}-{m.what}")
def test_mutants_are_still_found(mutant: Mutant) -> None:
    assert found(mutant, PACKAGE) and mutant.old != mutant.new


@pytest.mark.slow
@pytest.mark.parametrize("test", sorted({mutant.test for mutant in MUTANTS} | set(REPLAYS.values())))
def test_replays_pass_on_an_unchanged_copy(test: str, copy: Path, replays: Replays) -> None:
    status, output = replays.run(copy, test)
    assert status == 0, output


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"{m.test.partition('::')[0]}-{m.what}")
def test_replays_fail_on_mutants(mutant: Mutant, copy: Path, replays: Replays) -> None:
    changed = found(mutant, copy / "trainables")
    text = pattern(mutant.old).sub(lambda match: mutant.new, changed.read_text(encoding="utf-8"))
    changed.write_text(text, encoding="utf-8")
    status, output = replays.run(copy, mutant.test)
    assert status == 1, f"survived: {output}"
    # By a number that differs, and not because the changed code cannot run.
    assert re.search(r"^E +AssertionError: .*(differs by|and not)", output, re.MULTILINE), output
