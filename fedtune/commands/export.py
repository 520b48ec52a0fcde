"""fedtune export RUN -o best.yaml: keep the winning configuration."""

from __future__ import annotations

from typing import Annotated

import typer

EXAMPLES = """\
# Keep the best configuration:
fedtune export runs/dfrd-alpha_lambda -o best.yaml
# Print trial 7 as JSON:
fedtune export runs/dfrd-alpha_lambda --trial 7 --json
"""


def command(
    run: Annotated[str, typer.Argument(help="A run directory.", show_default=False)],
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            help="The .yaml or .json file to write. Without it, the configuration is printed.",
            show_default=False,
        ),
    ] = None,
    trial: Annotated[
        int | None, typer.Option(help="A trial's number.  [default: the best]", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the configuration as JSON.")] = False,
) -> None:
    """Write the best configuration of a search to a file, with a record of where it came from."""
    from fedtune.api.export import export
    from fedtune.commands import _output

    _output.exported(export(run, output, trial=trial), output, as_json)
