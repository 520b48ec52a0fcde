"""`fedtune reproduce` with the real command line, real Ray and the real engine."""

from __future__ import annotations

from pathlib import Path

from tests.end_to_end.cli import fedtune


def test_without_the_papers_data_it_says_what_is_missing(tmp_path: Path) -> None:
    empty = tmp_path / "data"
    empty.mkdir()
    done = fedtune(
        "reproduce", "dfrd-fig5", cwd=tmp_path, FEDTUNE_DATA=str(empty), FEDTUNE_CACHE=str(tmp_path / "cache")
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "svhn" in done.stderr.lower() and str(empty) in done.stderr
    assert not (tmp_path / "runs").exists()
