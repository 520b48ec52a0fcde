"""fedtune extend RUN --trials N --rounds N: add trials to a search, or rounds to its trials."""

from __future__ import annotations

from typing import Annotated

import typer

from fedtune.commands._complete import RunDir
from fedtune.commands._options import Address, AsJson, OtherVersions, Plain, Quiet

EXAMPLES = """\
# Thirty further trials:
fedtune extend runs/dfrd-alpha_lambda --trials 30
# Ten further rounds for every trial that was not stopped early:
fedtune extend runs/dfrd-alpha_lambda --rounds 10
"""


def command(
    run: RunDir,
    trials: Annotated[
        int | None,
        typer.Option(
            help="How many trials to add. To a race: the rounds of so many whole trials, spent as it sees fit.",
            show_default=False,
        ),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            help="How many rounds to add to every trial. Trials that ran all their rounds go on from their "
            "checkpoints; those that were stopped early stay stopped.",
            show_default=False,
        ),
    ] = None,
    address: Address = None,
    other_versions: OtherVersions = False,
    plain: Plain = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Add trials to a search, or rounds to its trials.

    With more trials the result is the same as if the search had asked for all of them from the start."""
    from fedtune.api.extend import extend
    from fedtune.commands import _output

    found = extend(
        run,
        trials=trials,
        rounds=rounds,
        address=address,
        other_versions=other_versions,
        plain=plain,
        quiet=quiet,
    )
    _output.result(found, as_json)
