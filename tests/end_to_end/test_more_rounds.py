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

pytestmark = pytest.mark.slow

SPACE = """
method: {method}
search:
  {key}: {{grid: [{low}, {high}]}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a space of two cells for a method without a schedule over the rounds, and for one with it."""
    (tmp_path / "plain.yaml").write_text(SPACE.format(method="fedprox", key="mu", low=0.001, high=0.1))
    (tmp_path / "planned.yaml").write_text(SPACE.format(method="fedphp", key="mu", low=0.0, high=0.9))
    return tmp_path


def grid(folder: Path, toy: Path, method: str, space: str, name: str, rounds: int) -> None:
    words = ("--dataset", toy, *SMALL, "--sampler", "grid", "--seeds", 2, "--rounds", rounds, "--name", name, "--quiet")
    done = fedtune("search", method, "--space", space, *words, cwd=folder)
    assert done.returncode == 0, done.stderr


def checkpoint(run: Path, number: int) -> object:
    return torch.load(run / run_folder.trial_folder(number) / run_folder.CHECKPOINT, weights_only=True)


@pytest.mark.numeric
def test_four_rounds_and_two_more_are_six(folder: Path, toy: Path) -> None:
    for name, rounds in (("long", 6), ("short", 4)):
        grid(folder, toy, "fedprox", "plain.yaml", name, rounds)
    long, short = folder / "runs" / "long", folder / "runs" / "short"
    done = fedtune("extend", short, "--rounds", 2, "--plain", cwd=folder)
    assert done.returncode == 0 and "Trials of 4 rounds get 2 more, which makes 6" in done.stderr, done.stderr
    assert "2 trials done" in done.stdout
    found = frozen(short)
    assert [trial["attributes"].pop(run_folder.WENT_ON) for trial in found] == [4, 4]
    assert found == frozen(long) and all(len(trial["rows"]) == 2 * 6 for trial in found)
    assert all(same(checkpoint(short, number), checkpoint(long, number)) for number in (0, 1))
    told = [json.loads(fedtune("export", run, "--json", cwd=folder).stdout) for run in (short, long)]
    assert told[0]["parameters"] == told[1]["parameters"] and told[0]["parameters"]["rounds"] == 6


@pytest.mark.numeric
def test_killed_in_the_midst_it_ends_the_same(folder: Path, toy: Path) -> None:
    grid(folder, toy, "fedprox", "plain.yaml", "calm", 2)
    calm, killed = folder / "runs" / "calm", folder / "runs" / "killed"
    shutil.copytree(calm, killed)
    assert fedtune("extend", calm, "--rounds", 40, "--quiet", cwd=folder).returncode == 0
    process = started("extend", killed, "--rounds", 40, "--quiet", cwd=folder)
    # Two trials of two seeds have two rounds each; then some more.
    wait_for_rounds(killed, 2 * 2 * 2 + 10, process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert "resumable" in fedtune("status", killed, cwd=folder).stdout
    done = fedtune("resume", killed, "--quiet", cwd=folder)
    assert done.returncode == 0 and frozen(killed) == frozen(calm), done.stderr


def test_a_schedule_over_the_planned_rounds_is_one_sentence(folder: Path, toy: Path) -> None:
    grid(folder, toy, "fedphp", "planned.yaml", "planned", 2)
    run = folder / "runs" / "planned"
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    done = fedtune("extend", run, "--rounds", 2, cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert " ".join(done.stderr.split()).endswith(
        "cannot have more than its 2 rounds, as FedPHP follows a schedule over all planned rounds, and its first 2 "
        "would be others (trial 1). Start a new search with --rounds 4."
    )
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
