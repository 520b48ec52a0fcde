"""fedtune export RUN -o best.yaml: keep the winning configuration."""

from __future__ import annotations

from typing import Annotated

import typer

from fedtune.commands._complete import RunDir

EXAMPLES = """\
# Keep the best configuration:
fedtune export runs/dfrd-alpha_lambda -o best.yaml
# Print trial 7 as JSON:
fedtune export runs/dfrd-alpha_lambda --trial 7 --json
# Of a run under several conditions, the best under one of them:
fedtune export runs/fedkf-fairness --where omega=0.1 -o best.yaml
# Keep every learning curve, of all trials, seeds and rounds:
fedtune export runs/dfrd-alpha_lambda --table -o curves.npz
"""


def command(
    run: RunDir,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            help="The .yaml, .json or (with --table) .npz file to write. Without it, the configuration is printed.",
            show_default=False,
        ),
    ] = None,
    trial: Annotated[
        int | None, typer.Option(help="A trial's number.  [default: the best]", show_default=False)
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            help="Of a run under several conditions: the condition, as name=value; may be given more than once.",
            show_default=False,
        ),
    ] = None,
    table: Annotated[
        bool,
        typer.Option(
            "--table", help="Write the learning curves of all trials instead, and a card that describes them beside it."
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the configuration, or with --table the card, as JSON.")
    ] = False,
) -> None:
    """Write the best configuration of a search to a file, with a record of where it came from."""
    from fedtune.console.busy import reading

    with reading("reading the run"):
        from fedtune.api.export import export
        from fedtune.commands import _output

        found = export(run, output, trial=trial, where=where or (), table=table)
    if table:
        _output.table_exported(found, str(output), as_json)
    else:
        _output.exported(found, output, as_json)
