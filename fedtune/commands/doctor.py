"""fedtune doctor: is this installation able to run a search?"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from fedtune.option import Option
from fedtune.options import AsJson

GUIDE = "gpu"
EXAMPLES = """\
# Before the first search:
fedtune doctor
# Each machine of the Ray cluster that this one belongs to:
fedtune doctor --address auto
# For a bug report:
fedtune doctor --json
"""


def command(
    *,
    address: Annotated[
        str | None,
        Option(help="Also check every machine of the Ray cluster at HOST:PORT, or of auto, this one's.", group="where"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check the installation. The exit code is 1 if a search could not run."""
    from fedtune.api.doctor import doctor
    from fedtune.console import tables

    checks = doctor(address)
    if as_json:
        tables.print_json([asdict(check) for check in checks])
    else:
        tables.show(
            "fedtune doctor", [asdict(check) for check in checks], {"name": "what", "state": "state", "text": "finding"}
        )
        bad = sum(check.state == "problem" for check in checks)
        tables.say(
            "Everything a search needs is there."
            if not bad
            else f"{bad} problem{'s' * (bad > 1)} must be mended before a search can run."
        )
    if any(check.state == "problem" for check in checks):
        raise typer.Exit(1)
