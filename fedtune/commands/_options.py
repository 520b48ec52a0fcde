"""Options that several commands share, each declared once."""

from __future__ import annotations

from typing import Annotated

import typer

Plain = Annotated[bool, typer.Option("--plain", help="Show progress as lines of text, for log files.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Address = Annotated[
    str | None, typer.Option(help="The HOST:PORT of a running Ray cluster to join, or auto.", show_default=False)
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
