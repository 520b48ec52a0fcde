"""`--every N`, by which continuous integration tries a sample of tests again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.conftest import pytest_collection_modifyitems


def kept(every: int, names: list[str]) -> tuple[set[str], set[str]]:
    """The names of the tests that run, and of those that pytest is told are left out."""
    left: list[Any] = []
    hook = SimpleNamespace(pytest_deselected=lambda items: left.extend(items))
    config: Any = SimpleNamespace(getoption=lambda name: every, hook=hook)
    items: list[Any] = [
        SimpleNamespace(nodeid=name, path=Path("a.py"), fixturenames=(), get_closest_marker=lambda mark: None)
        for name in names
    ]
    pytest_collection_modifyitems(config, items)
    return {item.nodeid for item in items}, {item.nodeid for item in left}


def test_a_sample_is_a_part_of_the_tests_and_the_same_part_in_whatever_order() -> None:
    names = [f"tests/a.py::test_of[{n}]" for n in range(300)]
    run, left = kept(3, names)
    assert run | left == set(names) and not run & left
    assert 70 < len(run) < 130 and run == kept(3, names[::-1])[0]
    assert kept(1, names) == (set(names), set())
