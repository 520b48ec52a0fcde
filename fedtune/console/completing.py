"""The process that a shell starts to complete a command line: it answers with words, or with nothing at all."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import typer

#: The shell's lines (`fedtune completion`) set it.
VARIABLE = "_FEDTUNE_COMPLETE"


def is_asked() -> bool:
    return VARIABLE in os.environ


def answer(app: typer.Typer) -> NoReturn:
    """Prints the words that may follow on the command line of `app` and ends the process. What would be a problem of a
    command is none here: somebody is still typing it."""
    from typer._completion_classes import completion_init

    from search_spaces.errors import UserError

    completion_init()
    with contextlib.suppress(UserError):
        app(prog_name="fedtune", standalone_mode=False)
    sys.exit(1)
