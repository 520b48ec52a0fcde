"""fedtune completion SHELL: the lines that make a shell complete commands, options, methods, spaces and runs."""

from __future__ import annotations

from typing import Annotated

from fedtune.commands._complete import SHELLS
from fedtune.option import Argument

GUIDE = "search"
EXAMPLES = """\
# For bash; `eval "$(fedtune completion bash)"` in ~/.bashrc takes the lines:
fedtune completion bash
# For zsh, the same after compinit in ~/.zshrc:
fedtune completion zsh
# For fish; `fedtune completion fish | source` takes them:
fedtune completion fish
"""


def command(
    shell: Annotated[str, Argument(help=f"{', '.join(SHELLS)}.", complete="shells")],
) -> None:
    """Print what makes a shell complete the command line: commands, options, methods, spaces, metrics and runs.

    No file is changed."""
    from typer._completion_shared import get_completion_script

    from fedtune.console.completing import VARIABLE
    from search_spaces.errors import UserError, unknown

    if shell not in SHELLS:
        raise UserError(unknown("shell", shell, SHELLS))
    print(get_completion_script(prog_name="fedtune", complete_var=VARIABLE, shell=shell))
