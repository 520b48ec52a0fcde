"""The table: every fault, what is done, and what must come of it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.faults.scene import Scene

#: The run, resumed where it needs that, is the run that nothing had disturbed.
EQUAL = "equal"
#: One sentence, and nothing in the run directory is changed.
REFUSED = "refused"


class Impossible(Exception):
    """This machine does not let the fault be made. The text says why."""


@dataclass(frozen=True)
class Case:
    """A fault."""

    name: str
    #: One line, in whole words.
    done: str
    expected: str
    #: Returns `EQUAL`, `REFUSED`, or a line on what came of it instead.
    make: Callable[[Scene], str]
    #: How many random moments it tries.
    moments: int = 0
    #: A process is killed at each of the moments.
    kills: bool = False
    #: What of the stock it begins with, which is made before its time is taken (`tests.faults.scene.Stock`).
    needs: tuple[str, ...] = ("record", "interrupted")
    #: Belongs to the short form.
    short: bool = False
    #: Of damaged files: their names, whose they are, and in which way they are damaged.
    of: tuple[str, str, str] | None = None


_CASES: list[Case] = []


def case(
    name: str, done: str, expected: str, **more: Any
) -> Callable[[Callable[[Scene], str]], Callable[[Scene], str]]:
    """Registers the function below it; `more` are further fields of `Case`."""

    def register(make: Callable[[Scene], str]) -> Callable[[Scene], str]:
        _CASES.append(Case(name, done, expected, make, **more))
        return make

    return register


def cases() -> list[Case]:
    """All of them, in the order of the files and of the lines in them."""
    from tests.faults import cases as package

    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda info: info.name):
        importlib.import_module(f"{package.__name__}.{info.name}")
    return list(_CASES)
