"""`fedtune reproduce` with the real command line, real Ray and the real engine."""

from __future__ import annotations

import csv
import signal
import time
from pathlib import Path

from search_spaces import run_folder
from tests.end_to_end.cli import fedtune, started

WORDS = ("reproduce", "fedkf-table12", "--small", "--rounds", "3", "--seeds", "2")


def test_a_table_is_made_interrupted_continued_and_taken(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "fedkf-table12-small"
    _interrupted(tmp_path, folder)
    done = fedtune(*WORDS, cwd=tmp_path, COLUMNS="80")
    assert done.returncode == 0, done.stderr
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    assert "here:  digits, model cnn_small, 10 clients, 3 rounds, 2 seeds" in done.stdout
    assert "paper: cifar10, model resnet8, 20 clients, 100 rounds, 3 seeds" in done.stdout
    assert "61.89 ± 0.81" in done.stdout  # Table XII: FedAvg, CIFAR-10, AMP
    assert "FedAvg (OCA) is ahead of FedAvg in mean accuracy" in done.stdout
    lines = list(csv.DictReader((folder / run_folder.VERDICTS).open(encoding="utf-8")))
    assert {(line["metric"], line["pairs"]) for line in lines} == {("amp", "2"), ("fm", "2"), ("wlp", "2")}
    assert "FedKF, Table XII, made again" in (folder / run_folder.REPORT).read_text(encoding="utf-8")

    before = {path: path.read_bytes() for path in folder.glob("cells/*/trials/*/rounds.jsonl")}
    again = fedtune(*WORDS, cwd=tmp_path, COLUMNS="80")
    assert again.returncode == 0 and len(before) == 4
    assert {path: path.read_bytes() for path in before} == before
    other = fedtune(*WORDS[:3], "--rounds", "4", "--seeds", "2", cwd=tmp_path)
    assert other.returncode == 2 and other.stdout == ""
    assert other.stderr.count("\n") == 1 and "was begun with 3 rounds, not 4" in other.stderr


def _interrupted(cwd: Path, folder: Path) -> None:
    """Ctrl-C after the first rounds."""
    process = started(*WORDS, cwd=cwd)
    deadline = time.monotonic() + 300
    while not any(path.stat().st_size for path in folder.glob("cells/*/trials/*/rounds.jsonl")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "it does not get going"
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "Go on with: fedtune reproduce fedkf-table12 --small --rounds 3 --seeds 2" in " ".join(out.split())


def test_without_the_papers_data_it_says_what_is_missing(tmp_path: Path) -> None:
    empty = tmp_path / "data"
    empty.mkdir()
    done = fedtune(
        "reproduce", "dfrd-fig5", cwd=tmp_path, FEDTUNE_DATA=str(empty), FEDTUNE_CACHE=str(tmp_path / "cache")
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "svhn" in done.stderr.lower() and str(empty) in done.stderr
    assert not (tmp_path / "runs").exists()
