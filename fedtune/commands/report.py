"""fedtune report RUN: one offline page about a run, and its tables and figures as files."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fedtune.commands import _complete
from fedtune.commands._options import Brackets, By, Variant

EXAMPLES = """\
# Write runs/dfrd-alpha_lambda/report.html and open it:
fedtune report runs/dfrd-alpha_lambda --open
# For a paper: tables as CSV and LaTeX, every figure as PDF:
fedtune report runs/dfrd-alpha_lambda --csv --latex --images pdf
# For an anonymous review, without the names of machines and paths:
fedtune report runs/dfrd-final --anonymous -o supplement.html
# One figure alone, for a paper:
fedtune report runs/dfrd-alpha_lambda --only heatmap -o fig5.png
# Any metric over rounds, a line for each method, as a picture:
fedtune report runs/fedavg-final runs/dfrd-final \\
    --only rounds --metric amp --metric wlp -o rounds.png
# One table alone, as Markdown:
fedtune report runs/dfrd-alpha_lambda --only trials -o trials.md
# A table of a paper made again on two data sets, in the paper's layout:
fedtune report runs/dfrd-table3-small runs/dfrd-table3-small-rotated_digits \\
    --only pivot -o table3.tex
# Follow a running search in the browser:
fedtune report runs/dfrd-alpha_lambda --watch --open
# Two runs on one page, also side by side:
fedtune report runs/dfrd-final runs/fedavg-final -o both.html
"""


def command(
    run: Annotated[
        list[str],
        typer.Argument(
            help="A run directory. Several are also compared on the page.",
            show_default=False,
            autocompletion=_complete.runs,
        ),
    ],
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="Where to write the page.  [default: RUN/report.html]", show_default=False),
    ] = None,
    csv: Annotated[bool, typer.Option("--csv", help="Also write RUN/trials.csv.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="Also write RUN/trials.tex (booktabs).")] = False,
    images: Annotated[
        str | None, typer.Option(help="Also write every figure to RUN/figures as png, svg or pdf.", show_default=False)
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            help="Write this figure or table alone, to the file that -o names (heatmap, trials, pivot, ...).",
            show_default=False,
        ),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="Of --only: png, svg, pdf or html; of a table also csv, tex or md.  [default: the suffix of -o]",
            show_default=False,
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(help="Of --only: the condition that is drawn, as name=value.", show_default=False),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="Of --only rounds, factor, spread or pivot: a metric that it shows; may be given more than once.  "
            "[default: accuracies; of pivot what the first run selected on]",
            show_default=False,
            autocompletion=_complete.metrics,
        ),
    ] = None,
    by: By = None,
    variant: Variant = None,
    down: Annotated[
        list[str] | None,
        typer.Option(
            help="Of --only pivot: what stands before the rows, of method, metric and the conditions; may be given "
            "more than once. All else stands above the columns of one table.  [default: method, a table per metric]",
            show_default=False,
        ),
    ] = None,
    brackets: Brackets = None,
    anonymous: Annotated[
        bool,
        typer.Option(
            "--anonymous", help="Leave out of the page the machine's name and system, the command, and paths."
        ),
    ] = False,
    show: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            help="Serve the page on this machine's loopback address instead, and follow the run, until Ctrl-C.",
        ),
    ] = False,
    port: Annotated[int, typer.Option(help="With --watch: the port.  [default: a free one]", show_default=False)] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the paths as JSON.")] = False,
) -> None:
    """Write a run's report: one HTML page that needs no network."""
    from fedtune.console import tables
    from search_spaces.files import shown

    if watch:
        _watch(run, port, show, given=bool(output or csv or latex or images or anonymous or as_json or only))
        return
    from fedtune.console.busy import busy
    from fedtune.console.progress import style
    from search_spaces.errors import UserError

    if only is not None:
        asked = {"where": where, "metrics": metric, "by": by, "variants": variant, "brackets": brackets}
        asked["down"] = down
        _one(run, only, kind, output, {name: value for name, value in asked.items() if value}, as_json)
        return
    if kind is not None or where or metric or by or variant or down or brackets:
        options = "--format, --where, --metric, --by, --variant, --down and --brackets"
        raise UserError(f"{options} belong to --only. Give the name of a figure or a table with --only.")
    with busy(style(), "loading what draws figures") as tell:
        from analysis.report import build
        from analysis.report.files import check_images, write_images, write_tables

        if images is not None:
            check_images(images)
        page = build(run, output, anonymous=anonymous, tell=tell)
        tell("writing tables and images")
        wanted = [kind for kind, asked in (("csv", csv), ("latex", latex)) if asked]
        further = [path for kind in wanted for path in write_tables(run, kind)]
        if images is not None:
            further += write_images(run, images)
    if as_json:
        tables.print_json({"report": str(page), "files": [str(path) for path in further]})
    else:
        tables.say("Report:", shown(page))
        for folder in dict.fromkeys(path.parent for path in further):
            tables.say("Also:", *(shown(path) for path in further if path.parent == folder))
    if show:
        typer.launch(page.resolve().as_uri())


def _one(
    run: list[str], only: str, kind: str | None, output: str | None, options: dict[str, Any], as_json: bool
) -> None:
    """Writes one figure or table; `options` are those of `analysis.loaded.Loaded.save`."""
    from fedtune.console import tables
    from fedtune.console.busy import busy
    from fedtune.console.progress import style
    from search_spaces.errors import UserError, sentence, short
    from search_spaces.files import shown

    if output is None and kind is None:
        raise UserError("--only writes one file. Name it with -o, such as -o fig5.png.")
    if only != "pivot" and options.keys() & {"by", "variants", "down", "brackets"}:
        raise UserError(f"--by, --variant, --down and --brackets belong to --only pivot, got --only {short(only)}.")
    if where := options.get("where"):
        options["where"] = dict(text.partition("=")[::2] for text in where)
        if not all(options["where"].values()):
            raise UserError(sentence("--where", "name=value", " ".join(where)))
    with busy(style(), "loading what draws figures") as tell:
        from analysis.loaded import load

        tell("reading the run")
        loaded = load(run)
        tell(f"drawing {only}")
        path = loaded.save(only, output or f"{only}.{kind}", kind=kind, **options)
    if as_json:
        tables.print_json({"file": str(path)})
    else:
        tables.say("Written:", shown(path))


def _watch(run: list[str], port: int, show: bool, *, given: bool) -> None:
    """Serves the page of one run. `given`: whether options were given that write files."""
    from fedtune.console import tables
    from fedtune.console.busy import busy
    from fedtune.console.progress import style
    from search_spaces.errors import UserError

    if len(run) > 1 or given:
        raise UserError("--watch follows one run and writes no file, so it takes one run, --port and --open only.")

    with busy(style(), "loading what draws figures") as tell:
        from fedtune.api.watch import serve, server

        made, address = server(run[0], port, tell)
    tables.say(f"Report: {address}   Ctrl-C ends it.")
    if show:
        typer.launch(address)
    serve(made)
