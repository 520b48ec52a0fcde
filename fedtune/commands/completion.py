"""fedtune completion SHELL: the lines that make a shell complete commands, options, methods, spaces and runs."""

from __future__ import annotations

from typing import Annotated

import typer

EXAMPLES = """\
# For bash; `eval "$(fedtune completion bash)"` in ~/.bashrc takes the lines:
fedtune completion bash
# For zsh, the same after compinit in ~/.zshrc:
fedtune completion zsh
# For fish; `fedtune completion fish | source` takes them:
fedtune completion fish
"""

SHELLS = ("bash", "zsh", "fish")


def command(
    shell: Annotated[
        str,
        typer.Argument(
            help=f"{', '.join(SHELLS)}.",
            show_default=False,
            autocompletion=lambda incomplete: [name for name in SHELLS if name.startswith(incomplete)],
        ),
    ],
) -> None:
    """Print what makes a shell complete the command line: commands, options, methods, spaces, metrics and runs.

    No file is changed."""
    from typer._completion_shared import get_completion_script

    from fedtune.console.completing import VARIABLE
    from search_spaces.errors import UserError, unknown

    if shell not in SHELLS:
        raise UserError(unknown("shell", shell, SHELLS))
    print(get_completion_script(prog_name="fedtune", complete_var=VARIABLE, shell=shell))
