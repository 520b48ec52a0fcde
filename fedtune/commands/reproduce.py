"""fedtune reproduce [NAME]: a figure or table of a paper, made again and set beside it."""

from __future__ import annotations

from typing import Annotated

import typer

from fedtune.commands import _complete
from fedtune.commands._options import AsJson, Concurrency, DataDir, Plain, Quiet, RunsDir

EXAMPLES = """\
# All figures and tables, and what each costs:
fedtune reproduce
# DFRD's heat map, small, on the embedded digits:
fedtune reproduce dfrd-fig5 --small --rounds 5
# A table of FedKF with more seeds than its small form has:
fedtune reproduce fedkf-table5 --small --seeds 5
# The paper's own data, model, rounds and seeds:
fedtune reproduce dfrd-table2 --data-dir ~/data
"""


def command(
    name: Annotated[
        str | None,
        typer.Argument(
            help="The figure or table. Without it, all are listed.",
            show_default=False,
            autocompletion=_complete.reproductions,
        ),
    ] = None,
    small: Annotated[
        bool, typer.Option("--small", help="On the embedded digits, in minutes, instead of the paper's setting.")
    ] = False,
    rounds: Annotated[
        int | None,
        typer.Option(help="Communication rounds.  [default: the small form's, or the paper's]", show_default=False),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Seeds.  [default: the small form's, or the paper's]", show_default=False)
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            help="Another data set: another one of the paper, or any of yours.  [default: the paper's first; digits "
            "with --small]",
            show_default=False,
        ),
    ] = None,
    data_dir: DataDir = None,
    runs_dir: RunsDir = "runs",
    concurrency: Concurrency = None,
    plain: Plain = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Make a figure or table of a paper again, and say which of the paper's sentences hold.

    Runs what is missing and takes what is there. After Ctrl-C the same command goes on."""
    from fedtune.commands import _reproduce_output

    if name is None:
        _reproduce_output.listing(as_json)
        return
    from fedtune.api.reproduce import reproduce

    _reproduce_output.result(
        reproduce(
            name,
            small=small,
            rounds=rounds,
            seeds=seeds,
            dataset=dataset,
            data_dir=data_dir,
            runs_dir=runs_dir,
            concurrency=concurrency,
            plain=plain,
            quiet=quiet,
        ),
        as_json,
    )
