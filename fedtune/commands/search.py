"""fedtune search METHOD: find good hyper-parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedtune.options import AsJson, DryRun, SearchRequest

if TYPE_CHECKING:
    from fedtune.planning.estimate import Estimate
    from fedtune.planning.plan import Plan

GUIDE = "search"
EXAMPLES = """\
# DFRD's α and λ, small, on the embedded digits:
fedtune search dfrd --space alpha_lambda
# The plan and an estimate of its time; nothing is created:
fedtune search dfrd --space alpha_lambda --dry-run
# Every cell of the paper's grid, three seeds per trial:
fedtune search dfrd --space alpha_lambda --sampler grid --seeds 3
# Further seeds only for configurations that are worth them:
fedtune search dfrd --space alpha_lambda --race
# Two hours at most, 20 clients, two metrics at once:
fedtune search fedavg --time 2h --set clients=20 --sampler nsga2 \\
    --metric val_global_accuracy --metric val_local_accuracy
# Begin with what an earlier search found:
fedtune search dfrd --space alpha_lambda --warm-start runs/first --name second
# A table of your own, rounds logged for TensorBoard, a command at the end:
fedtune search fedavg --dataset people.csv --label y --client hospital \\
    --log tensorboard --when-done 'echo "$FEDTUNE_STATE"'
"""


def command(request: SearchRequest, *, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Search the hyper-parameters of a method."""
    from fedtune.api.search import carry_out
    from fedtune.commands import _output
    from fedtune.planning.plan import plan

    planned = plan(request)
    if dry_run:
        _output.estimate(_timed(planned, request), as_json)
    else:
        _output.result(carry_out(planned, request), as_json)


def _timed(planned: Plan, request: SearchRequest) -> Estimate:
    """What a plan is expected to take."""
    from fedtune.console.busy import busy
    from fedtune.console.progress import style
    from fedtune.planning.estimate import estimate

    with busy(style(request.plain, request.quiet), "timing a few rounds"):
        return estimate(planned)
