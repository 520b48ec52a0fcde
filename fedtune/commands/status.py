"""fedtune status RUN: how far a run has come, also while it runs."""

from __future__ import annotations

from fedtune.options import AsJson, Run

GUIDE = "search"
EXAMPLES = """\
# How many trials are done, and the best so far:
fedtune status runs/dfrd-alpha_lambda
# The same for a program:
fedtune status runs/dfrd-alpha_lambda --json
"""


def command(run: Run, *, as_json: AsJson = False) -> None:
    """Show how far a run has come. This reads the run directory only, so it also works while the run goes on."""
    from fedtune.console.busy import reading

    with reading("reading the run"):
        from fedtune.api.status import how_far, opened

        read = opened(run)
        found = how_far(read)
    from fedtune.commands import _status_output

    _status_output.status(read, found, as_json)
