"""fedtune compare RUN RUN …: methods side by side, with paired tests over the seeds they share."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from fedtune.commands import _complete

EXAMPLES = """\
# Two methods, tested seed by seed:
fedtune compare runs/fedavg-final runs/dfrd-final
# One metric, its best round instead of the last, as a LaTeX table:
fedtune compare runs/fedavg-final runs/dfrd-final \\
    --metric global_accuracy --readout best --latex
# Learning curves laid over each other:
fedtune compare runs/fedavg-final runs/dfrd-final --figure curves.html
"""


def command(
    runs: Annotated[
        list[str],
        typer.Argument(
            help="Run directories; the others are tested against the first.",
            show_default=False,
            autocompletion=_complete.runs,
        ),
    ],
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="The metric to compare; may be given more than once.  [default: global_accuracy, local_accuracy]",
            show_default=False,
            autocompletion=_complete.metrics,
        ),
    ] = None,
    readout: Annotated[
        str, typer.Option(help="Compare the value of the `last` round, or of the `best` round.")
    ] = "last",
    figure: Annotated[
        str | None,
        typer.Option(
            help="Also write this HTML file, with the learning curves of all runs in one figure.", show_default=False
        ),
    ] = None,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="Print a LaTeX table (booktabs).")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Set runs side by side: mean ± std over seeds, paired tests against the first, and the settings that differ.

    Of a search its best trial is compared, by the metric that the search selected on; of a final run, all seeds are."""
    from fedtune.console import tables
    from fedtune.console.busy import busy
    from fedtune.console.progress import style
    from search_spaces.errors import UserError, visible

    if sum((csv, latex, as_json)) > 1:
        raise UserError("Only one of --csv, --latex, --json may be given, as each prints the whole result.")
    with busy(style(), "comparing the runs"):
        from analysis.compare import compare
        from analysis.report.comparison import write_figure

        found = compare(runs, metrics=metric or (), readout=readout)
        written = write_figure(found, figure) if figure is not None else None
    if as_json:
        tables.print_json(found.to_json())
    elif csv:
        print(found.records().csv(), end="")
    elif latex:
        print("\n".join(table.latex() for table in found.tables()), end="")
    else:
        from rich.console import Console

        console = Console(width=None if sys.stdout.isatty() or os.environ.get("COLUMNS") else 160)
        for table in found.tables():
            console.print(table.rich())
        for note in found.notes():
            tables.say(note)
    if written is not None:
        typer.echo(visible(f"Figure: {written}"), err=csv or latex or as_json)
