"""fedtune status RUN: how far a run has come, also while it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from fedtune.commands._complete import RunDir

EXAMPLES = """\
# How many trials are done, and the best so far:
fedtune status runs/dfrd-alpha_lambda
# The same for a program:
fedtune status runs/dfrd-alpha_lambda --json
"""


def command(
    run: RunDir,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show how far a run has come. This reads the run directory only, so it also works while the run goes on."""
    from analysis import auto

    if auto.is_auto(run):
        from fedtune.commands import _auto_output

        _auto_output.status(auto.load(run), as_json)
        return
    from fedtune.api.status import status
    from fedtune.commands import _output

    _output.status(status(run), as_json)
