"""The command line, from the commands themselves: what `--help` prints, as one page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import typer

from fedtune import cli
from site_pages.markup import block, code, page, plain, table


def pages() -> dict[str, str]:
    """`reference/commands.md`."""
    group: Any = typer.main.get_command(cli.app)
    context = group.make_context("fedtune", ["doctor"], resilient_parsing=True)
    parts = [part for name in group.list_commands(context) for part in _command(name, group.get_command(context, name))]
    lead = (
        "What `fedtune COMMAND --help` prints. Results go to stdout and progress to stderr. Exit codes: 0 done, "
        "1 failed, 2 something you can mend, 3 to be resumed after something outside of it failed, 130 interrupted and "
        "resumable."
    )
    return {"reference/commands.md": page("Command line", lead, *parts)}


def _command(name: str, command: Any) -> Iterable[str]:
    context = command.make_context(name, [], resilient_parsing=True, terminal_width=80)
    yield f"## fedtune {name}"
    yield from (plain(" ".join(text.split())) for text in (command.help or "").split("\n\n"))
    yield block(command.epilog, "sh")
    for heading, rows in command.sections(context).items():
        yield f"**{heading}**"
        yield table(("name", "meaning"), [(code(what), plain(meaning)) for what, meaning in rows], "options")
