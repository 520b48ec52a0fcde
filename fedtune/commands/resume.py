"""fedtune resume RUN: go on with an interrupted run."""

from __future__ import annotations

from fedtune.option import call
from fedtune.options import AsJson, ResumeRequest

GUIDE = "resume"
EXAMPLES = """\
# Go on after Ctrl-C, a crash or a full disk:
fedtune resume runs/dfrd-alpha_lambda
# With another hour, four trials at once:
fedtune resume runs/dfrd-alpha_lambda --time 1h --slots 4
"""


def command(request: ResumeRequest, *, as_json: AsJson = False) -> None:
    """Go on with an interrupted run; every trial continues from its last checkpoint."""
    from fedtune.api.auto import AutoResult
    from fedtune.api.reproduce import Reproduced
    from fedtune.api.resume import resume
    from fedtune.commands import _auto_output, _output, _reproduce_output

    result = call(resume, request)
    if isinstance(result, AutoResult):
        _auto_output.result(result, as_json)
    elif isinstance(result, Reproduced):
        _reproduce_output.result(result, as_json)
    else:
        _output.result(result, as_json)
