"""Requirements: how they are written, what misses them by how much, which contradict each other."""

from __future__ import annotations

import math

import pytest

from search_spaces.errors import UserError
from search_spaces.metrics import UNREACHED
from search_spaces.requirements import Requirement, asked, read, read_all, violation


def test_they_are_read_under_recorded_names() -> None:
    problems: list[str] = []
    found = asked(["wlp>=0.3", "bytes_up <= 5e7", "val_wlp>=0.3"], "validation", problems)
    assert found == (Requirement("val_wlp", True, 0.3), Requirement("bytes_up", False, 5e7)) and not problems
    assert asked(["wlp>=0.3"], "test", problems) == (Requirement("wlp", True, 0.3),)
    assert [read(str(one)) for one in found] == list(found)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["wlp"], "require must be METRIC>=NUMBER or METRIC<=NUMBER, such as wlp>=0.3, got 'wlp' (--require)."),
        (["wlp>0.3"], "require must be"),
        (["wlp>=much"], "require must be"),
        (["wlp>=1e999"], "require must be"),
        (["wpl>=0.3"], "Unknown metric 'wpl' (--require). Did you mean 'wlp'?"),
        (["wlp>=0.5", "wlp<=0.4"], "--require val_wlp>=0.5 and --require val_wlp<=0.4 contradict each other"),
    ],
)
def test_what_cannot_be_used_is_told(texts: list[str], said: str) -> None:
    problems: list[str] = []
    asked(texts, "validation", problems)
    assert len(problems) == 1 and problems[0].startswith(said)


def test_bounds_that_leave_one_value_do_not_contradict() -> None:
    problems: list[str] = []
    asked(["wlp>=0.5", "wlp<=0.5"], "validation", problems)
    assert not problems


@pytest.mark.parametrize(
    ("text", "value", "missed"),
    [
        ("val_wlp>=0.4", 0.4, 0.0),
        ("val_wlp>=0.4", 0.3, 0.25),
        ("val_wlp>=0.4", None, math.inf),
        ("val_wlp>=0.4", math.nan, math.inf),
        ("bytes_up<=200", 300.0, 0.5),
        ("bytes_up<=200", 100.0, 0.0),
        ("train_loss<=0", 0.5, 0.5),
        ("val_rounds_to_target<=20", None, math.inf),
        ("val_rounds_to_target<=20", UNREACHED, math.inf),
        ("val_rounds_to_target<=20", 10.0, 0.0),
        ("val_rounds_to_target>=5", None, 0.0),
    ],
)
def test_by_how_much_a_value_misses(text: str, value: float | None, missed: float) -> None:
    assert read(text).missed(value) == pytest.approx(missed)


def test_misses_add_up() -> None:
    both = (read("val_wlp>=0.4"), read("bytes_up<=200"))
    assert violation(both, {"val_wlp": 0.3, "bytes_up": 300.0}) == pytest.approx(0.75)
    assert violation(both, {"val_wlp": 0.5}) == math.inf


def test_an_edited_record_is_refused() -> None:
    with pytest.raises(UserError, match="require must be requirements such as"):
        read_all(["wlp is high"], "experiment.yaml")
