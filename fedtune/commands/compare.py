"""fedtune compare RUN RUN …: methods side by side, with paired tests over the seeds they share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer

from fedtune.options import AsJson, CompareRequest

if TYPE_CHECKING:
    from analysis.runs import Run

GUIDE = "compare-methods"
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


def command(request: CompareRequest, *, as_json: AsJson = False) -> None:
    """Set runs side by side: mean ± std over seeds, paired tests against the first, and the settings that differ.

    Runs under several conditions of the experiment, and runs with --by, are set side by side as one pivot table per
    metric, a column per condition. Of a search its best trial is compared, by the metric that the search selected on;
    of a final run, all seeds are."""
    from fedtune.console.busy import busy
    from fedtune.console.progress import style
    from search_spaces.errors import UserError

    asked = request
    if [asked.csv, asked.latex, asked.markdown].count(STDOUT) + as_json > 1:
        raise UserError("Only one of --csv, --latex, --markdown and --json can print, as each prints the whole result.")
    places = {"--figure": asked.figure, "--csv": asked.csv, "--latex": asked.latex, "--markdown": asked.markdown}
    _check_places(places)
    with busy(style(), "reading the runs"):
        from analysis.runs import load_runs as load_all
        from analysis.tables.cells import varied

        loaded = load_all(list(asked.runs))
    if asked.by or asked.variant or asked.where or asked.brackets or varied(loaded):
        _pivots(loaded, asked, as_json)
        return
    if asked.markdown is not None:
        raise UserError("--markdown writes the table that --by makes. Give --by, or use --csv or --latex.")
    _side_by_side(loaded, asked, as_json)


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


def _side_by_side(loaded: list[Run], asked: CompareRequest, as_json: bool) -> None:
    """Each run as one row."""
    from fedtune.console import tables
    from fedtune.console.busy import busy
    from fedtune.console.progress import style

    with busy(style(), "comparing the runs"):
        from analysis.report.comparison import write_figure
        from analysis.tables.compare import compare

        found = compare(loaded, metrics=asked.metric, readout=asked.readout)
        made = _texts(
            {
                "CSV": (asked.csv, found.records().csv),
                "LaTeX": (asked.latex, lambda: "\n".join(t.latex() for t in found.tables())),
            }
        )
        written = write_figure(found, asked.figure) if asked.figure is not None else None
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


def _pivots(loaded: list[Run], asked: CompareRequest, as_json: bool) -> None:
    """One table per metric, a column per condition."""
    from analysis.tables.pivot import SIGNS
    from fedtune.console import tables
    from fedtune.console.busy import busy
    from fedtune.console.progress import style

    with busy(style(), "comparing the runs") as tell:
        from analysis.pivots import of_runs

        found = of_runs(loaded, asked.metric, asked.by, asked.variant, asked.where, asked.brackets, asked.readout)
        made = _texts(
            {
                "CSV": (asked.csv, found.csv),
                "LaTeX": (asked.latex, found.latex),
                "Markdown": (asked.markdown, found.markdown),
            }
        )
        written = None
        if asked.figure is not None:
            tell("drawing figures")
            written = found.page(asked.figure)
    if written is not None:
        _written("Figure", written)
    quiet = _files(made)
    if as_json:
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
