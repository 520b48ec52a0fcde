"""fedtune methods [NAME]: what can be searched, and every parameter of one method."""

from __future__ import annotations

from shlex import quote
from typing import Annotated

import typer

EXAMPLES = """\
# All methods:
fedtune methods
# Every parameter of DFRD: symbol, default, bounds, source:
fedtune methods dfrd
"""


def command(
    name: Annotated[
        str | None, typer.Argument(help="A method's name. Without it, all methods are listed.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List the methods, or every parameter of one."""
    from fedtune.api.catalogue import methods
    from fedtune.console import tables

    rows = methods(name)
    if as_json:
        tables.print_json(rows)
    elif name is None:
        shown = [row | {"capabilities": ", ".join(row["capabilities"])} for row in rows]
        tables.show(
            "Methods",
            shown,
            {
                "name": "name",
                "title": "title",
                "family": "family",
                "capabilities": "capabilities",
                "reference": "reference",
                "spaces": "spaces",
            },
        )
        tables.say("fedtune methods NAME lists a method's parameters; fedtune spaces NAME lists its search spaces.")
    else:
        columns = {
            "name": "name",
            "symbol": "symbol",
            "default": "default",
            "bounds": "must be",
            "tuned": "default search",
            "doc": "meaning",
            "source": "source",
        }
        for group, title in (
            ("method", f"{name}: the method's parameters"),
            ("federation", "The federation, the same for every method"),
        ):
            found = [row for row in rows if row["group"] == group]
            shown = [
                row | {"name": row["key"] if row["option"] is None else f"{row['key']} ({row['option']})"}
                for row in found
            ]
            tables.show(title, shown, columns)
        tables.say(
            f"Any of them can be changed with --set name=value, for example: "
            f"fedtune search {quote(name)} --set rounds=20"
        )
