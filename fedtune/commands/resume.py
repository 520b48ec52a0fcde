"""fedtune resume RUN: go on with an interrupted run."""

from __future__ import annotations

from typing import Annotated

import typer

from fedtune.commands._complete import RunDir
from fedtune.commands._options import Address, AsJson, OtherVersions, Plain, Quiet

EXAMPLES = """\
# Go on after Ctrl-C, a crash or a full disk:
fedtune resume runs/dfrd-alpha_lambda
# With another hour, four trials at once:
fedtune resume runs/dfrd-alpha_lambda --time 1h --concurrency 4
"""


def command(
    run: RunDir,
    time: Annotated[
        str | None, typer.Option(help="A new wall-clock budget, such as 30m or 2h.", show_default=False)
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(help="How many trials run at the same time.  [default: as the run began]", show_default=False),
    ] = None,
    cpus_per_trial: Annotated[
        float | None,
        typer.Option(help="How many cores each trial has.  [default: as the run began]", show_default=False),
    ] = None,
    gpus_per_trial: Annotated[
        float | None,
        typer.Option(help="The part of a GPU that each trial has.  [default: as the run began]", show_default=False),
    ] = None,
    address: Address = None,
    other_versions: OtherVersions = False,
    plain: Plain = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Go on with an interrupted run; every trial continues from its last checkpoint."""
    from fedtune.api.auto_result import AutoResult
    from fedtune.api.resume import resume
    from fedtune.commands import _auto_output, _output

    result = resume(
        run,
        time=time,
        concurrency=concurrency,
        cpus_per_trial=cpus_per_trial,
        gpus_per_trial=gpus_per_trial,
        address=address,
        other_versions=other_versions,
        plain=plain,
        quiet=quiet,
    )
    if isinstance(result, AutoResult):
        _auto_output.result(result, as_json)
    else:
        _output.result(result, as_json)
