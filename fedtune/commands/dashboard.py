"""fedtune dashboard RUN: optuna-dashboard on a copy of the run's study."""

from __future__ import annotations

from typing import Annotated

import typer

from fedtune.option import Option
from fedtune.options import Run

GUIDE = "from-ray-tune-and-optuna"
EXAMPLES = """\
# optuna-dashboard at http://127.0.0.1:8080:
fedtune dashboard runs/dfrd-alpha_lambda
# On another port:
fedtune dashboard runs/dfrd-alpha_lambda --port 9000
"""


def command(
    run: Run,
    *,
    port: Annotated[int, Option(help="The port on this machine at which the dashboard answers.", group="where")] = 8080,
) -> None:
    """Open optuna-dashboard on a copy of a run's study; Ctrl-C ends it. It has no log-in."""
    from fedtune.api.status import dashboard

    code = dashboard(run, port=port)
    if code:
        raise typer.Exit(code)
