"""fedtune run best.yaml, fedtune run RUN_DIR, fedtune run METHOD --set …: one configuration on fresh seeds."""

from __future__ import annotations

from fedtune.option import call
from fedtune.options import AsJson, RunRequest

GUIDE = "start"
EXAMPLES = """\
# A configuration that `fedtune export` kept, on five fresh seeds:
fedtune run best.yaml --seeds 5
# The winner of a search, straight from its run directory:
fedtune run runs/dfrd-alpha_lambda --seeds 5
# A method without a search:
fedtune run fedprox --set mu=0.01 --rounds 20 --name fedprox-20
# The paper's data set, model and rounds instead of the small profile:
fedtune run dfrd --space alpha_lambda --paper
"""


def command(request: RunRequest, *, as_json: AsJson = False) -> None:
    """Train one configuration on fresh seeds: an exported one, a search's winner, or a method's own.

    Prints mean ± std over the seeds on the test set, and keeps the trained models."""
    from fedtune.api.run import run
    from fedtune.commands import _output

    _output.final(call(run, request), as_json)
