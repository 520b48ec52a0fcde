"""The order in which files of tests are begun."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.conftest import pytest_collection_modifyitems


def item(file: str, number: int, *, slow: bool = False, fixtures: tuple[str, ...] = ()) -> Any:
    marks = {"slow"} if slow else set()
    return SimpleNamespace(
        path=Path(file), name=f"{file}{number}", fixturenames=fixtures, get_closest_marker=lambda mark: mark in marks
    )


def test_long_files_come_first_and_a_file_stays_together() -> None:
    items = [
        *(item("quick", n) for n in range(9)),
        *(item("slow", n, slow=n == 1) for n in range(2)),
        *(item("ray", n, fixtures=("tmp_path", "ray_cluster")) for n in range(1)),
        *(item("many", n) for n in range(15)),
    ]
    pytest_collection_modifyitems(items)
    names = [one.name for one in items]
    assert names[:2] == ["slow0", "slow1"]
    assert names[2:17] == [f"many{n}" for n in range(15)]
    assert names[17] == "ray0"
    assert names[18:] == [f"quick{n}" for n in range(9)]
