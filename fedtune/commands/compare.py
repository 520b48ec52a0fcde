"""fedtune compare RUN RUN …: methods side by side, with paired tests over the seeds they share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedtune.commands import _complete
from fedtune.commands._options import Brackets, By, Variant

if TYPE_CHECKING:
    from analysis.runs import Run

EXAMPLES = """\
# Two methods, tested seed by seed:
fedtune compare runs/fedavg-final runs/dfrd-final
# One metric, its best round instead of the last, as a LaTeX table:
fedtune compare runs/fedavg-final runs/dfrd-final \\
    --metric global_accuracy --readout best --latex -
# Learning curves laid over each other:
fedtune compare runs/fedavg-final runs/dfrd-final --figure curves.html
# A paper's table: a row per method, a column per ω, and a page of it:
fedtune compare runs/fedavg-omega runs/dfrd-omega --by omega \\
    --brackets local_accuracy --latex table.tex --figure omega.html
# The variants of one method under each condition:
fedtune compare runs/fedkf-fairness --variant teacher --metric amp
"""

#: Where a table is printed instead of written.
STDOUT = "-"


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
            help="The metric to compare; may be given more than once.  [default: global_accuracy, local_accuracy; with "
            "--by, what the first run selected on]",
            show_default=False,
            autocompletion=_complete.metrics,
        ),
    ] = None,
    by: By = None,
    variant: Variant = None,
    where: Annotated[
        list[str] | None,
        typer.Option(help="Of the pivot table: only trials with this value, as name=value.", show_default=False),
    ] = None,
    brackets: Brackets = None,
    readout: Annotated[
        str, typer.Option(help="Compare the value of the `last` round, or of the `best` round.")
    ] = "last",
    figure: Annotated[
        str | None,
        typer.Option(
            help="Also write this HTML file, with figures of all runs and the tables.",
            show_default=False,
        ),
    ] = None,
    csv: Annotated[
        str | None, typer.Option(help="Write the result to this CSV file; `-` prints it.", show_default=False)
    ] = None,
    latex: Annotated[
        str | None,
        typer.Option(help="Write LaTeX tables (booktabs) to this file; `-` prints them.", show_default=False),
    ] = None,
    markdown: Annotated[
        str | None,
        typer.Option(help="With --by: write Markdown tables to this file; `-` prints them.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Set runs side by side: mean ± std over seeds, paired tests against the first, and the settings that differ.

    Runs under several conditions of the experiment, and runs with --by, are set side by side as one pivot table per
    metric, a column per condition. Of a search its best trial is compared, by the metric that the search selected on;
    of a final run, all seeds are."""
    from fedtune.console.busy import busy
    from fedtune.console.progress import style
    from search_spaces.errors import UserError

    if [csv, latex, markdown].count(STDOUT) + as_json > 1:
        raise UserError("Only one of --csv, --latex, --markdown and --json can print, as each prints the whole result.")
    _check_places({"--figure": figure, "--csv": csv, "--latex": latex, "--markdown": markdown})
    with busy(style(), "reading the runs"):
        from analysis.runs import load_all
        from analysis.tables.cells import varied

        loaded = load_all(runs)
    if by or variant or where or brackets or varied(loaded):
        _pivots(loaded, locals())
        return
    if markdown is not None:
        raise UserError("--markdown writes the table that --by makes. Give --by, or use --csv or --latex.")
    _side_by_side(loaded, metric or [], readout, figure, csv, latex, as_json)


def _check_places(asked: dict[str, str | None]) -> None:
    """Raises `UserError` where a file cannot be written to its place, or two have the same one, before any is."""
    from pathlib import Path

    from analysis.report.page import check_place
    from search_spaces.errors import UserError, short

    taken: dict[Path, str] = {}
    for option, target in asked.items():
        if target is None or (target == STDOUT and option != "--figure"):
            continue
        place = Path(target).absolute()
        check_place(Path(target))
        if place in taken:
            same = f"{taken[place]} and {option} name the same file, {short(target)}."
            raise UserError(f"{same} Give each a place of its own.")
        taken[place] = option


def _side_by_side(
    loaded: list[Run],
    metric: list[str],
    readout: str,
    figure: str | None,
    csv: str | None,
    latex: str | None,
    as_json: bool,
) -> None:
    """Each run as one row."""
    from fedtune.console import tables
    from fedtune.console.busy import busy
    from fedtune.console.progress import style

    with busy(style(), "comparing the runs"):
        from analysis.report.comparison import write_figure
        from analysis.tables.compare import compare

        found = compare(loaded, metrics=metric, readout=readout)
        made = _texts(
            {"CSV": (csv, found.records().csv), "LaTeX": (latex, lambda: "\n".join(t.latex() for t in found.tables()))}
        )
        written = write_figure(found, figure) if figure is not None else None
    if written is not None:
        _written("Figure", written)
    quiet = _files(made)
    if as_json:
        tables.print_json(found.to_json())
    elif not quiet:
        console = _console()
        for table in found.tables():
            console.print(table.rich())
        for note in found.notes():
            tables.say(note)


def _pivots(loaded: Any, asked: dict[str, Any]) -> None:
    """One table per metric, a column per condition."""
    from analysis.tables.pivot import SIGNS
    from fedtune.console import tables
    from fedtune.console.busy import busy
    from fedtune.console.progress import style

    metrics, by, variants, where = (asked[key] or () for key in ("metric", "by", "variant", "where"))
    with busy(style(), "comparing the runs") as tell:
        from analysis.pivots import of_runs

        found = of_runs(loaded, metrics, by, variants, where, asked["brackets"], asked["readout"])
        made = _texts(
            {
                "CSV": (asked["csv"], found.csv),
                "LaTeX": (asked["latex"], found.latex),
                "Markdown": (asked["markdown"], found.markdown),
            }
        )
        written = None
        if asked["figure"] is not None:
            tell("drawing figures")
            written = found.page(asked["figure"])
    if written is not None:
        _written("Figure", written)
    quiet = _files(made)
    if asked["as_json"]:
        tables.print_json(found.to_json())
    elif not quiet:
        console = _console()
        for table in found.tables:
            console.print(table.rich())
        for note in found.notes(SIGNS):
            tables.say(note)


def _texts(made: dict[str, tuple[str | None, Callable[[], str]]]) -> dict[str, tuple[str, str]]:
    """What was asked for, by its name: its place and its text. All is made before anything is written."""
    return {name: (target, text()) for name, (target, text) in made.items() if target is not None}


def _files(made: dict[str, tuple[str, str]]) -> bool:
    """Writes or prints what was made; whether anything was printed."""
    from pathlib import Path

    from analysis.report.page import write

    printed = False
    for name, (target, text) in made.items():
        if target == STDOUT:
            print(text, end="")
            printed = True
        else:
            _written(name, write(Path(target), text))
    return printed


def _written(what: str, path: Any) -> None:
    """Tells of a file, on stderr: what is printed may be for a program."""
    from search_spaces.errors import visible
    from search_spaces.files import shown

    typer.echo(visible(f"{what}: {shown(path)}"), err=True)


def _console() -> Any:
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() or os.environ.get("COLUMNS") else 160)
