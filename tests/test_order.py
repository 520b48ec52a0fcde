"""Which tests are run, and in which order their files are begun."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conftest import pytest_collection_modifyitems
from tests import tiers

ROOT = Path("/root-of-tests")


def item(file: str, number: int) -> Any:
    """A test as pytest has it, as far as it is looked at here."""
    marks: set[str] = set()
    name = f"{file}{number}"
    return SimpleNamespace(
        path=ROOT / file,
        name=name,
        nodeid=name,
        add_marker=marks.add,
        get_closest_marker=lambda mark: mark if mark in marks else None,
    )


def collected(items: list[Any], **options: Any) -> list[Any]:
    """Brings `items` into order; what pytest is told is left out of them."""
    left: list[Any] = []
    given = {"every": 1, "order": None, "markexpr": ""} | options
    config: Any = SimpleNamespace(
        rootpath=ROOT,
        getoption=given.__getitem__,
        hook=SimpleNamespace(pytest_deselected=lambda items: left.extend(items)),
    )
    pytest_collection_modifyitems(config, items)
    return left


@pytest.mark.parametrize(
    ("which", "order"), [("", "slow many quick"), ("not slow and not nightly", "many slow quick")], ids=["all", "quick"]
)
def test_the_files_that_take_longest_come_first_and_a_file_stays_together(
    which: str, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is recorded of a file counts as far as it is run: its slow tests do not, where they are left out."""
    monkeypatch.setattr(tiers, "recorded", lambda: {"slow1": 9.0, "slow": 1.0, "many": 4.0})
    items = [item(file, n) for n in range(3) for file in ("quick", "slow", "many")]
    assert collected(items, markexpr=which) == []
    assert [one.name for one in items] == [f"{file}{n}" for file in order.split() for n in range(3)]


def test_an_order_of_the_day_is_another_one_with_files_together() -> None:
    """`make test-nightly` finds tests that lean on one another."""
    items = [item(file, n) for file in "abcdef" for n in range(5)]
    orders = []
    for day in ("2026-11-27", "2026-11-27", "2026-11-28"):
        run = list(items)
        collected(run, order=day)
        orders.append([one.name for one in run])
        places = {file: [n for n, name in enumerate(orders[-1]) if name[0] == file] for file in "abcdef"}
        assert all(found == list(range(found[0], found[0] + 5)) for found in places.values())
    assert orders[0] == orders[1] != orders[2] != [one.name for one in items]


def test_a_sample_is_a_part_of_the_tests_and_the_same_part_in_whatever_order() -> None:
    """`--every 3`, by which continuous integration runs some tests as on another processor."""
    items = [item("of", n) for n in range(300)]
    run, again = list(items), items[::-1]
    left = collected(run, every=3)
    collected(again, every=3)
    assert {one.name for one in run} | {one.name for one in left} == {one.name for one in items}
    assert 70 < len(run) < 130 and len(run) + len(left) == 300
    assert {one.name for one in again} == {one.name for one in run}
