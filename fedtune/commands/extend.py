"""fedtune extend RUN --trials N --rounds N: add trials to a search, or rounds to its trials."""

from __future__ import annotations

from fedtune.option import call
from fedtune.options import AsJson, ExtendRequest

GUIDE = "resume"
EXAMPLES = """\
# Thirty further trials:
fedtune extend runs/dfrd-alpha_lambda --trials 30
# Ten further rounds for every trial that was not stopped early:
fedtune extend runs/dfrd-alpha_lambda --rounds 10
"""


def command(request: ExtendRequest, *, as_json: AsJson = False) -> None:
    """Add trials to a search, or rounds to its trials.

    The guide says when the result is that of a search which had asked for all of them from the start."""
    from fedtune.api.extend import extend
    from fedtune.commands import _output

    _output.result(call(extend, request), as_json)
