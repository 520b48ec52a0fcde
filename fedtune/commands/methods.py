"""fedtune methods [NAME]: what can be searched, and every parameter of one method."""

from __future__ import annotations

from typing import Annotated

from fedtune.option import Argument
from fedtune.options import AsJson, Long
from search_spaces.shell import quote

GUIDE = "search"
EXAMPLES = """\
# All methods:
fedtune methods
# Every parameter of DFRD:
fedtune methods dfrd
# The same with bounds and sources:
fedtune methods dfrd --long
"""

#: What is printed of a method, and of a parameter, beside its name.
FACTS = ("family", "capabilities", "reference", "spaces")
PARAMETER = {
    "name": "name",
    "symbol": "symbol",
    "default": "default",
    "bounds": "must be",
    "tuned": "default search",
    "doc": "meaning",
    "source": "source",
}


def command(
    name: Annotated[
        str | None, Argument(help="A method's name. Without it, all methods are listed.", complete="methods")
    ] = None,
    *,
    long: Long = False,
    as_json: AsJson = False,
) -> None:
    """List the methods, or every parameter of one."""
    from fedtune.api.catalogue import methods
    from fedtune.console import tables

    rows = methods(name)
    if as_json:
        tables.print_json(rows)
    elif name is None:
        if long:
            tables.blocks("Methods", rows, {key: key for key in ("name", "title", *FACTS)}, whole=2)
        else:
            tables.brief("Methods", rows, {"name": "name", "title": "title", "family": "family"})
        tables.say("`fedtune methods NAME` lists a method's parameters, `fedtune spaces NAME` its search spaces.")
    else:
        for group, title in (
            ("method", f"{name}: the method's parameters"),
            ("federation", "The federation, the same for every method"),
        ):
            found = [
                row | {"name": row["key"] if row["option"] is None else f"{row['key']} ({row['option']})"}
                for row in rows
                if row["group"] == group
            ]
            if long:
                tables.blocks(title, found, PARAMETER)
            else:
                tables.brief(title, found, {"name": "name", "default": "default", "doc": "meaning"}, whole=2)
        example = f"fedtune search {quote(name)} --set rounds=20"
        tables.say("Any of them can be changed with --set name=value, for example:", example)
    if not (as_json or long):
        tables.say("--long prints everything.")
