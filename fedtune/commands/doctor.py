"""fedtune doctor: is this installation able to run a search?"""

from __future__ import annotations

from dataclasses import asdict

import typer

from fedtune.options import AsJson

EXAMPLES = """\
# Before the first search:
fedtune doctor
# For a bug report:
fedtune doctor --json
"""


def command(*, as_json: AsJson = False) -> None:
    """Check the installation. The exit code is 1 if a search could not run."""
    from fedtune.api.doctor import doctor
    from fedtune.console import tables

    checks = doctor()
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
