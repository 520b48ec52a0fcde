"""fedtune compare RUN RUN …: methods side by side, with paired tests over the seeds they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from fedtune.options import AsJson, CompareRequest

if TYPE_CHECKING:
    from analysis.runs import Run
    from analysis.tables.pivot import Pivot
    from analysis.tables.table import Table

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
#: How the names of files end, by option, as those of `fedtune figure` do.
ENDINGS = {"--figure": ".html", "--csv": ".csv", "--latex": ".tex", "--markdown": ".md"}


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
    under_conditions = bool(asked.by or asked.variant or asked.where or asked.brackets or varied(loaded))
    if asked.markdown is not None and not under_conditions:
        raise UserError("--markdown writes the table that --by makes. Give --by, or use --csv or --latex.")
    with busy(style(), "comparing the runs") as tell:
        found = (_pivots if under_conditions else _side_by_side)(loaded, asked)
        # All is made before anything is written.
        made = {name: (target, found.texts[name]()) for name, target in _texts(asked).items() if target is not None}
        page = None
        if asked.figure is not None:
            tell("drawing figures")
            page = found.page(asked.figure)
    _written_and_printed(found, page, made, as_json)


def _check_places(asked: dict[str, str | None]) -> None:
    """Raises `UserError` where a file cannot be written to its place, or two have the same one, before any is."""
    from analysis.report.page import check_place
    from search_spaces.errors import UserError, short
    from search_spaces.files import check_ending

    taken: dict[Path, str] = {}
    for option, target in asked.items():
        if target is None or (target == STDOUT and option != "--figure"):
            continue
        place = Path(target).absolute()
        check_place(Path(target))
        if place in taken:
            same = f"{taken[place]} and {option} name the same file, {short(target)}."
            raise UserError(f"{same} Give each a place of its own.")
        check_ending(Path(target), (ENDINGS[option],), option)
        taken[place] = option


class _Found(NamedTuple):
    """What a comparison is printed as, and what it is written as."""

    tables: Sequence[Table | Pivot]
    notes: Sequence[str]
    to_json: Callable[[], Any]
    #: By its name what makes each text that an option asks for.
    texts: Mapping[str, Callable[[], str]]
    #: Writes a page with figures, and returns its path.
    page: Callable[[str], Path]


def _texts(asked: CompareRequest) -> dict[str, str | None]:
    """Where each text is to be written."""
    return {"CSV": asked.csv, "LaTeX": asked.latex, "Markdown": asked.markdown}


def _side_by_side(loaded: Sequence[Run], asked: CompareRequest) -> _Found:
    """Each run as one row."""
    from analysis.report.comparison import write_figure
    from analysis.tables.compare import compare

    found = compare(loaded, metrics=asked.metric, readout=asked.readout)
    texts = {"CSV": found.records().csv, "LaTeX": lambda: "\n".join(table.latex() for table in found.tables())}
    return _Found(found.tables(), found.notes(), found.to_json, texts, partial(write_figure, found))


def _pivots(loaded: Sequence[Run], asked: CompareRequest) -> _Found:
    """One table per metric, a column per condition."""
    from analysis.pivots import of_runs
    from analysis.tables.pivot import SIGNS

    found = of_runs(loaded, asked.metric, asked.by, asked.variant, asked.where, asked.brackets, asked.readout)
    texts = {"CSV": found.csv, "LaTeX": found.latex, "Markdown": found.markdown}
    return _Found(found.tables, found.notes(SIGNS), found.to_json, texts, found.page)


def _written_and_printed(found: _Found, page: Path | None, made: Mapping[str, tuple[str, str]], as_json: bool) -> None:
    """Tells of the page, writes the texts that were made, each to its place, and prints what is left to print."""
    from analysis.report.page import write
    from fedtune.console import tables

    if page is not None:
        _written("Figure", page)
    for name, (target, text) in made.items():
        if target == STDOUT:
            print(text, end="")
        else:
            _written(name, write(Path(target), text))
    if as_json:
        tables.print_json(found.to_json())
    elif STDOUT not in [target for target, _ in made.values()]:
        for table in found.tables:
            tables.draw(table)
        for note in found.notes:
            tables.say(note)


def _written(what: str, path: Path) -> None:
    """Tells of a file, on stderr: what is printed may be for a program."""
    from search_spaces.errors import visible
    from search_spaces.files import shown

    typer.echo(visible(f"{what}: {shown(path)}"), err=True)
