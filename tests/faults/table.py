"""The table that is printed, and the one that stands in the documents."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from tests.faults.registry import Case, Impossible

#: Columns of the screen.
WIDTH = 80
_NAME = 44
#: Exit codes of a campaign.
OTHERWISE, INCOMPLETE = 1, 3


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
        """Whether it was tried, and came out as expected."""
        return self.got == self.case.expected

    @property
    def other(self) -> bool:
        """Whether it was tried, and came out otherwise."""
        return self.got is not None and not self.good


def head() -> str:
    return f"{'fault':<{_NAME}} {'moments':>7}  {'expected':<8}  {'got':<9} {'s':>4}"


def line(tried: Tried) -> str:
    """A row; what was not expected stands below it in full."""
    case = tried.case
    short = "not tried" if tried.got is None else tried.got if not tried.other else "OTHER"
    names = textwrap.wrap(case.name, _NAME)
    first = f"{names[0]:<{_NAME}} {case.moments or '':>7}  {case.expected:<8}  {short:<9} {tried.seconds:>4.0f}"
    below = [f"  {part}" for part in names[1:]]
    told = tried.why if tried.got is None else str(tried.got) if tried.other else ""
    below += textwrap.wrap(told, WIDTH, initial_indent="    ", subsequent_indent="    ") if told else []
    return "\n".join([first, *below])


def totals(tried: Sequence[Tried]) -> str:
    """`30 of 30 kills, 39 of 40 other faults as expected; 1 not tried.` What could not be tried is counted among all of
    them, and not among those that were as expected."""
    kills = [one for one in tried if one.case.kills]
    others = [one for one in tried if not one.case.kills]
    told = [
        f"{sum(one.case.moments for one in kills if one.good)} of {sum(one.case.moments for one in kills)} kills",
        f"{sum(one.good for one in others)} of {len(others)} other faults",
    ]
    missing = len(untried(tried))
    return f"{', '.join(told)} as expected{f'; {missing} not tried' if missing else ''}."


def untried(tried: Sequence[Tried]) -> list[Tried]:
    """Those that could not be made here."""
    return [one for one in tried if one.got is None]


def code(tried: Sequence[Tried]) -> int:
    """The campaign's exit code: `OTHERWISE` where a fault came out otherwise, `INCOMPLETE` where all that were tried
    are as expected and some could not be made here, 0 where all of them were tried."""
    if any(one.other for one in tried):
        return OTHERWISE
    return INCOMPLETE if untried(tried) else 0


def incomplete(tried: Sequence[Tried]) -> str:
    """What is said in the end where something could not be tried; empty where all was."""
    missing = untried(tried)
    if not missing:
        return ""
    why = " ".join(dict.fromkeys(one.why for one in missing))
    names = ", ".join(one.case.name for one in missing)
    told = f"This campaign is not complete, and shows nothing of {names}. {why}"
    return "\n".join(textwrap.wrap(told, WIDTH))


def attempt_failed(error: Impossible) -> str:
    return f"It cannot be tried here: {error}."
