"""The real command line, real Ray, the real engine: single commands in ordinary and awkward places."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.cli import SMALL, fedtune, search


def test_a_stranger_in_the_current_directory(toy: Path, tmp_path: Path) -> None:
    """Ray puts the folder a worker starts in first on its path. (`-P` keeps it off the driver's, as the installed
    script does.)"""
    (tmp_path / "analysis.py").write_text("raise SystemExit('a stranger')")
    (tmp_path / "trainables").mkdir()
    (tmp_path / "trainables" / "__init__.py").write_text("raise SystemExit('a stranger')")
    script = Path(sys.executable).with_name("fedtune")
    done = subprocess.run(
        [script, "search", "fedavg", "--dataset", toy, *SMALL, "--trials", "1", "--rounds", "1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs" / "fedavg-default" / "study.journal").exists()


def test_dry_run_creates_nothing(toy: Path, tmp_path: Path) -> None:
    done = search(toy, tmp_path, "plan", "--trials", 20, "--rounds", 5, "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["trials"] == 20 and found["round_seconds"] > 0 and found["estimated_seconds"] > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("search", "fedavgg"), "Did you mean 'fedavg'"),
        (("search", "fedavg", "--trials", "0"), "trials must be"),
        (("search", "fedavg", "--per-trial", "gpus=64"), "gpus of a trial must be"),
        (("resume", "runs/nothing"), "There is no run"),
        (("status", "."), "is not a run"),
        (("export", "runs/nothing"), "There is no run"),
        (("run", "nothing.yaml"), "nothing.yaml"),
        (("serch",), "Did you mean 'search'"),
    ],
)
def test_wrong_requests_on_the_command_line(tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    done = fedtune(*words, cwd=tmp_path)
    assert done.returncode == 2 and says in done.stderr and "Traceback" not in done.stderr and done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_a_final_run_of_a_method_without_a_global_model(toy: Path, tmp_path: Path) -> None:
    done = fedtune(
        "run",
        "lgfedavg",
        "--dataset",
        toy,
        *SMALL,
        "--rounds",
        2,
        "--seeds",
        2,
        "--set",
        "attack_images=1",
        "--set",
        "attack_steps=2",
        "--name",
        "two",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "2 of 2 seeds trained" in done.stdout and "Local accuracy" in done.stdout and "PSNR" in done.stdout
    assert not list((tmp_path / "runs" / "two").glob("trials/*/model-*"))
