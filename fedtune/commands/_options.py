"""Options that several commands share, each declared once."""

from __future__ import annotations

from typing import Annotated, Any

import typer

Plain = Annotated[bool, typer.Option("--plain", help="Show progress as lines of text, for log files.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Address = Annotated[
    str | None, typer.Option(help="The HOST:PORT of a running Ray cluster to join, or auto.", show_default=False)
]
KeepImages = Annotated[
    bool,
    typer.Option(
        "--keep-images",
        help="Keep images of the method's generator at every evaluated round, the mean training image of every class "
        "and, of a data set known by name, a few test images of it; the report shows them.",
    ),
]
OtherVersions = Annotated[
    bool,
    typer.Option(
        "--other-versions",
        help="Go on although libraries have other versions than those the run was begun with; its record names both.",
    ),
]
RunsDir = Annotated[str, typer.Option(help="The folder in which run directories are created.")]
DataDir = Annotated[
    str | None, typer.Option(help="The folder that holds the files of downloaded data sets.", show_default=False)
]
Require = Annotated[
    list[str] | None,
    typer.Option(
        metavar="METRIC>=NUMBER",
        help="What a configuration must keep to be selected, such as wlp>=0.3 or bytes_up<=5e7; may be given more "
        "than once.",
        show_default=False,
    ),
]


def _lag(default: str) -> Any:
    said = (
        "Propose trial n from the results of trials 0 to n - LAG only. A larger lag lets more trials run at once.  "
        f"[default: {default}]"
    )
    return typer.Option(help=said, show_default=False)


Lag = Annotated[int | None, _lag("4; for the first ten trials 2")]
AutoLag = Annotated[int | None, _lag("4")]
Concurrency = Annotated[
    int | None,
    typer.Option(
        help="How many trials run at the same time.  [default: one per core, at most the lag]", show_default=False
    ),
]
CpusPerTrial = Annotated[
    float | None,
    typer.Option(help="How many cores, and threads, each trial has.  [default: 1]", show_default=False),
]
GpusPerTrial = Annotated[
    float | None,
    typer.Option(
        help="The part of a GPU that each trial has.  [default: 0.25 where there is a GPU]", show_default=False
    ),
]
By = Annotated[
    list[str] | None,
    typer.Option(
        help="Of the pivot table: a column per value of this parameter, such as omega; may be given more than once.  "
        "[default: the conditions that a run varies]",
        show_default=False,
    ),
]
Variant = Annotated[
    list[str] | None,
    typer.Option(help="Of the pivot table: a row per value of this searched parameter.", show_default=False),
]
Brackets = Annotated[
    str | None, typer.Option(help="Of the pivot table: also this metric, in brackets.", show_default=False)
]
