"""The table that is printed, and the one that stands in the documents."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from tests.faults.registry import Case, Impossible

#: Columns of the screen.
WIDTH = 80
_NAME = 45


@dataclass(frozen=True)
class Tried:
    """A case, and what came of it."""

    case: Case
    #: None where it could not be made.
    got: str | None
    seconds: float
    why: str = ""

    @property
    def good(self) -> bool:
        return self.got in (None, self.case.expected)


def head() -> str:
    return f"{'fault':<{_NAME}} {'moments':>7}  {'expected':<8}  {'got':<8}  {'s':>4}"


def line(tried: Tried) -> str:
    """A row; what was not expected stands below it in full."""
    case = tried.case
    short = "not tried" if tried.got is None else tried.got if tried.good else "OTHER"
    names = textwrap.wrap(case.name, _NAME)
    first = f"{names[0]:<{_NAME}} {case.moments or '':>7}  {case.expected:<8}  {short:<8}  {tried.seconds:>4.0f}"
    below = [f"  {part}" for part in names[1:]]
    told = tried.why if tried.got is None else "" if tried.good else str(tried.got)
    below += textwrap.wrap(told, WIDTH, initial_indent="    ", subsequent_indent="    ") if told else []
    return "\n".join([first, *below])


def totals(tried: Sequence[Tried]) -> str:
    """`30 of 30 kills, 40 of 40 other faults; seed 7.`"""
    done = [one for one in tried if one.got is not None]
    kills = [one for one in done if one.case.kills]
    others = [one for one in done if not one.case.kills]
    told = [
        f"{sum(one.case.moments for one in kills if one.good)} of {sum(one.case.moments for one in kills)} kills",
        f"{sum(one.good for one in others)} of {len(others)} other faults",
    ]
    missing = len(tried) - len(done)
    return f"{', '.join(told)} as expected{f'; {missing} could not be tried here' if missing else ''}."


def attempt_failed(error: Impossible) -> str:
    return f"It cannot be tried here: {error}."
