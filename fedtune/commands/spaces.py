"""fedtune spaces [METHOD]: the named search spaces."""

from __future__ import annotations

from typing import Annotated

from fedtune.option import Argument
from fedtune.options import AsJson, Long
from search_spaces.shell import quote

GUIDE = "search"
EXAMPLES = """\
# The search spaces of all methods:
fedtune spaces
# Those of DFRD with what they search and fix:
fedtune spaces dfrd --long
# For a program:
fedtune spaces dfrd --json
"""


def command(
    method: Annotated[
        str | None,
        Argument(help="A method's name. Without it, the spaces of all methods are listed.", complete="methods"),
    ] = None,
    *,
    long: Long = False,
    as_json: AsJson = False,
) -> None:
    """List the named search spaces of one method or of all."""
    from fedtune.api.catalogue import spaces
    from fedtune.console import tables

    rows = spaces(method)
    if as_json:
        tables.print_json(rows)
        return
    named = {"method": "method", "name": "space"}
    if long:
        facts = {"title": "title", "search": "searches", "vary": "conditions", "cells": "grid points"}
        facts |= {"fix": "fixed", "source": "source"}
        tables.blocks("Search spaces", rows, named | facts, whole=2)
    else:
        tables.brief("Search spaces", rows, named | {"title": "title"}, whole=2)
    example = rows[0] if rows else {"method": "METHOD", "name": "SPACE"}
    command = f"fedtune search {quote(example['method'])} --space {quote(example['name'])}"
    tables.say(f"`{command}` searches one of them. For a space of your own, give --space the path of a YAML file.")
    if not long:
        tables.say("--long prints what they search and fix, and where they come from.")
