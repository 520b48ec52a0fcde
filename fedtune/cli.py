"""The command line. A sub-command is a file in `fedtune/commands` with a function `command` and a text `EXAMPLES`,
which its `--help` ends with; no list is edited to add one.

A command's file is imported when its name is given, so no other command's imports are paid for, and `fedtune --help`
imports only the commands' signatures.

Exit codes: 0 done, 1 failed, 2 something the user can mend, 3 Ray's servers died and the run can be resumed, 130
interrupted and resumable.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from typing import TYPE_CHECKING

import typer
from typer.core import TyperCommand, TyperGroup

from fedtune import commands, guard

if TYPE_CHECKING:
    from typer._click import Command, Context, HelpFormatter

#: First the commands in the order in which one usually needs them; others follow by name.
ORDER = (
    "search",
    "report",
    "export",
    "run",
    "compare",
    "methods",
    "spaces",
    "datasets",
    "metrics",
    "runs",
    "resume",
    "extend",
    "status",
    "dashboard",
    "doctor",
)


class Explained(TyperCommand):
    """A command whose `--help` ends with its examples, line by line as they are written."""

    def format_epilog(self, ctx: Context, formatter: HelpFormatter) -> None:
        # The epilog of typer would be filled like a paragraph, which breaks commands in two.
        with formatter.section("Examples"):
            for line in (self.epilog or "").splitlines():
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")


class Lazy(TyperGroup):
    """Imports a command when it is asked for."""

    def list_commands(self, ctx: Context) -> list[str]:
        found = [info.name for info in pkgutil.iter_modules(commands.__path__) if not info.name.startswith("_")]
        return sorted(found, key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        known = self.list_commands(ctx)
        if cmd_name not in known:
            if cmd_name.startswith("-"):
                return None  # a misplaced option, which typer tells of
            from search_spaces.errors import UserError, unknown

            raise UserError(unknown("command", cmd_name, known))
        module = importlib.import_module(f"{commands.__name__}.{cmd_name}")
        single = typer.Typer(add_completion=False, rich_markup_mode=None)
        single.command(cmd_name, cls=Explained, epilog=module.EXAMPLES)(module.command)
        return typer.main.get_command(single)


app = typer.Typer(
    cls=Lazy,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog="`fedtune COMMAND --help` explains a command and ends with examples.",
)


def _version(show: bool) -> None:
    if show:
        from importlib.metadata import version

        print(f"fedtune {version('fedtune')}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(
        False, "--version", is_eager=True, callback=_version, help="Print the version and end."
    ),
) -> None:
    """Hyper-parameter search for federated learning: every trial is a whole simulated federation."""


def main() -> None:
    """The console script `fedtune`."""
    hidden = guard.problem()
    if hidden is not None:
        print(hidden, file=sys.stderr)
        sys.exit(2)
    from search_spaces.errors import UserError, visible

    try:
        app()
    except UserError as error:
        for problem in error.problems:
            print(visible(problem), file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        # The reader of a pipe (`| head`) has gone; writing the rest at exit would fail again.
        sys.stdout = None
        sys.exit(1)
