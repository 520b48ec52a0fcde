"""fedtune report RUN: one offline page about a run, and its tables and figures as files."""

from __future__ import annotations

import typer

from fedtune.options import AsJson, ReportRequest

GUIDE = "read-a-report"
EXAMPLES = """\
# Write runs/dfrd-alpha_lambda/report.html and open it:
fedtune report runs/dfrd-alpha_lambda --open
# For a paper: tables as CSV and LaTeX, every figure as PDF:
fedtune report runs/dfrd-alpha_lambda --csv --latex --images pdf
# For an anonymous review, without the names of machines and paths:
fedtune report runs/dfrd-final --anonymous -o supplement.html
# Follow a running search in the browser:
fedtune report runs/dfrd-alpha_lambda --watch --open
# Two runs on one page, also side by side:
fedtune report runs/dfrd-final runs/fedavg-final -o both.html
"""


def command(request: ReportRequest, *, as_json: AsJson = False) -> None:
    """Write a run's report: one HTML page that needs no network."""
    from fedtune.console import tables
    from fedtune.console.busy import busy
    from fedtune.console.progress import style
    from search_spaces.files import shown

    if request.watch:
        _watch(request, as_json)
        return
    runs = list(request.runs)
    with busy(style(), "loading what draws figures") as tell:
        from analysis.report import build
        from analysis.report.files import check_images, write_images, write_tables

        if request.images is not None:
            check_images(request.images)
        page = build(runs, request.output, anonymous=request.anonymous, tell=tell)
        tell("writing tables and images")
        wanted = [kind for kind, asked in (("csv", request.csv), ("latex", request.latex)) if asked]
        further = [path for kind in wanted for path in write_tables(runs, kind)]
        if request.images is not None:
            further += write_images(runs, request.images)
    if as_json:
        tables.print_json({"report": str(page), "files": [str(path) for path in further]})
    else:
        tables.say("Report:", shown(page))
        for folder in dict.fromkeys(path.parent for path in further):
            tables.say("Also:", *(shown(path) for path in further if path.parent == folder))
    if request.show:
        typer.launch(page.resolve().as_uri())


def _watch(request: ReportRequest, as_json: bool) -> None:
    """Serves the page of one run."""
    from fedtune.console import tables
    from fedtune.console.busy import busy
    from fedtune.console.progress import style
    from search_spaces.errors import UserError

    r = request
    if len(r.runs) > 1 or r.output or r.csv or r.latex or r.images or r.anonymous or as_json:
        raise UserError("--watch follows one run and writes no file, so it takes one run, --port and --open only.")

    with busy(style(), "loading what draws figures") as tell:
        from fedtune.api.watch import serve, server

        made, address = server(r.runs[0], r.port or 0, tell)
    tables.say(f"Report: {address}   Ctrl-C ends it.")
    if r.show:
        typer.launch(address)
    serve(made)
