"""A search that was given more rounds is the longer search, by the real command line and with real federations."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
import torch

from search_spaces import run_folder
from tests.contracts.test_methods import same
from tests.end_to_end.cli import SMALL, fedtune, started, wait_for_rounds
from tests.fedtune.conftest import frozen

SPACE = """
method: fedprox
search:
  mu: {grid: [0.001, 0.1]}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a space of two cells."""
    made = tmp_path_factory.mktemp("more")
    (made / "plain.yaml").write_text(SPACE)
    return made


def grid(folder: Path, toy: Path, name: str, rounds: int) -> Path:
    words = ("--dataset", toy, *SMALL, "--sampler", "grid", "--seeds", 2, "--rounds", rounds, "--name", name)
    done = fedtune("search", "fedprox", "--space", "plain.yaml", *words, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "runs" / name


@pytest.fixture(scope="module")
def short(folder: Path, toy: Path) -> Path:
    """Two trials of two rounds over two seeds."""
    return grid(folder, toy, "short", 2)


@pytest.fixture(scope="module")
def extended(short: Path, folder: Path) -> tuple[Path, str, str]:
    """A copy of it that was given forty rounds more, and what was then said on standard output and error."""
    run = Path(shutil.copytree(short, folder / "runs" / "extended"))
    done = fedtune("extend", run, "--rounds", 40, cwd=folder)
    assert done.returncode == 0, done.stderr
    return run, done.stdout, done.stderr


def checkpoint(run: Path, number: int) -> object:
    return torch.load(run / run_folder.trial_folder(number) / run_folder.CHECKPOINT, weights_only=True)


@pytest.mark.numeric
def test_two_rounds_and_forty_more_are_forty_two(folder: Path, toy: Path, extended: tuple[Path, str, str]) -> None:
    run, printed, told = extended
    long = grid(folder, toy, "long", 42)
    assert "Trials of 2 rounds get 40 more, which makes 42" in told and "2 trials done" in printed
    found = frozen(run)
    assert [trial["attributes"].pop(run_folder.WENT_ON) for trial in found] == [2, 2]
    assert found == frozen(long) and all(len(trial["rows"]) == 2 * 42 for trial in found)
    assert all(same(checkpoint(run, number), checkpoint(long, number)) for number in (0, 1))
    exported = [json.loads(fedtune("export", one, "--json", cwd=folder).stdout) for one in (run, long)]
    assert exported[0]["parameters"] == exported[1]["parameters"] and exported[0]["parameters"]["rounds"] == 42


@pytest.mark.numeric
def test_killed_in_the_midst_it_ends_the_same(folder: Path, short: Path, extended: tuple[Path, str, str]) -> None:
    killed = Path(shutil.copytree(short, folder / "runs" / "killed"))
    process = started("extend", killed, "--rounds", 40, cwd=folder)
    # Two trials of two seeds have two rounds each; then some more.
    wait_for_rounds(killed, 2 * 2 * 2 + 10, process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert "resumable" in fedtune("status", killed, cwd=folder).stdout
    done = fedtune("resume", killed, cwd=folder)
    assert done.returncode == 0 and frozen(killed) == frozen(extended[0]), done.stderr
