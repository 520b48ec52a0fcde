"""fedtune extend RUN --trials N: add trials to a search."""

from __future__ import annotations

from typing import Annotated

import typer

from fedtune.commands._complete import RunDir
from fedtune.commands._options import Address, AsJson, OtherVersions, Plain, Quiet

EXAMPLES = """\
# Thirty further trials:
fedtune extend runs/dfrd-alpha_lambda --trials 30
"""


def command(
    run: RunDir,
    trials: Annotated[int, typer.Option(help="How many trials to add.", show_default=False)],
    address: Address = None,
    other_versions: OtherVersions = False,
    plain: Plain = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Add trials to a search. The result is the same as if the search had asked for all of them from the start."""
    from fedtune.api.search import extend
    from fedtune.commands import _output

    _output.result(
        extend(run, trials=trials, address=address, other_versions=other_versions, plain=plain, quiet=quiet), as_json
    )
