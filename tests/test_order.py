"""Which tests are run, and in which order their files are begun."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.conftest import pytest_collection_modifyitems


def item(file: str, number: int, *, slow: bool = False, fixtures: tuple[str, ...] = ()) -> Any:
    marks = {"slow"} if slow else set()
    name = f"{file}{number}"
    return SimpleNamespace(
        path=Path(file), name=name, nodeid=name, fixturenames=fixtures, get_closest_marker=lambda mark: mark in marks
    )


def collected(items: list[Any], every: int = 1) -> list[Any]:
    """Brings `items` into order; what pytest is told is left out of them."""
    left: list[Any] = []
    config: Any = SimpleNamespace(
        getoption=lambda name: every, hook=SimpleNamespace(pytest_deselected=lambda items: left.extend(items))
    )
    pytest_collection_modifyitems(config, items)
    return left


def test_long_files_come_first_and_a_file_stays_together() -> None:
    items = [
        *(item("quick", n) for n in range(9)),
        *(item("slow", n, slow=n == 1) for n in range(2)),
        *(item("ray", n, fixtures=("tmp_path", "ray_cluster")) for n in range(1)),
        *(item("many", n) for n in range(15)),
    ]
    assert collected(items) == []
    names = [one.name for one in items]
    assert names[:2] == ["slow0", "slow1"]
    assert names[2:17] == [f"many{n}" for n in range(15)]
    assert names[17] == "ray0"
    assert names[18:] == [f"quick{n}" for n in range(9)]


def test_a_sample_is_a_part_of_the_tests_and_the_same_part_in_whatever_order() -> None:
    """`--every 3`, by which continuous integration runs some tests as on another processor."""
    items = [item("of", n) for n in range(300)]
    run, again = list(items), items[::-1]
    left = collected(run, 3)
    collected(again, 3)
    assert {one.name for one in run} | {one.name for one in left} == {one.name for one in items}
    assert 70 < len(run) < 130 and len(run) + len(left) == 300
    assert {one.name for one in again} == {one.name for one in run}
