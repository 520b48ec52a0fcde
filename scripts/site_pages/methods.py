"""A page per federated method: its docstring with the equations, its parameters, limits, spaces and code.

The docstring's layout is fixed (see docs/add-a-method.md): a first line, paragraphs, blocks indented by four columns
that hold equations and symbols, and a paragraph that begins with "Differs from the paper".
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import fedtune
from search_spaces.parameter import parameters
from site_pages.markup import block, code, page, plain, table
from trainables import registry
from trainables.method import Limit, Method

DIFFERS = "Differs from the paper"
#: A column is: its heading, and the field of a row of `fedtune.methods(NAME)`.
COLUMNS = ("parameter", "symbol", "default", "must be", "meaning", "source")


def pages() -> dict[str, str]:
    """`methods/index.md` and `methods/<name>.md`."""
    found = registry.methods()
    return {"methods/index.md": _index()} | {f"methods/{name}.md": _page(method) for name, method in found.items()}


def _index() -> str:
    rows = sorted(fedtune.methods(), key=lambda row: row["family"])
    cells = [
        (
            f"[{plain(row['title'])}]({row['name']}.md)",
            code(row["name"]),
            plain(row["family"]),
            plain(", ".join(row["capabilities"])),
            plain(row["reference"]),
        )
        for row in rows
    ]
    lead = (
        f"{len(rows)} methods. Each is one file that reads like its paper, and each has a page here: equations, "
        "parameters with bounds and source, special cases, search spaces, code. `fedtune methods` lists them in the "
        "terminal, and [one more file adds another](../add-a-method.md)."
    )
    return page("Methods", lead, table(("method", "name", "family", "capabilities", "reference"), cells, "methods"))


def _page(method: Method) -> str:
    module = importlib.import_module(f"trainables.methods.{method.name}")
    first, *blocks = inspect.cleandoc(module.__doc__ or "").split("\n\n")
    differs = next((i for i, text in enumerate(blocks) if text.startswith(DIFFERS)), None)
    if differs is None:
        raise ValueError(f"The docstring of {module.__name__} must have a paragraph that begins with {DIFFERS!r}.")
    return page(
        method.title,
        _sentence(first.partition(": ")[2]),
        _facts(method),
        "## The method",
        *map(_block, blocks[:differs]),
        "## Differs from the paper",
        _sentence(blocks[differs].removeprefix(DIFFERS).lstrip(":, ")),
        *map(_block, blocks[differs + 1 :]),
        *_parameters(method),
        "## Limits",
        _limits(method.limits),
        *_spaces(method.name),
        *_code(method, module.__file__ or ""),
    )


def _sentence(text: str) -> str:
    """`text` as a sentence of its own; a first word such as q-FFL keeps its small letter."""
    text = " ".join(text.split())
    return plain(text[0].upper() + text[1:] if text.split()[0].islower() else text)


def _block(text: str) -> str:
    """A block of a docstring: equations and symbols as they stand, prose as prose."""
    if all(line.startswith("    ") for line in text.splitlines() if line):
        return block(inspect.cleandoc(text), style="equations")
    return plain(" ".join(text.split()))


def _facts(method: Method) -> str:
    facts = {
        "name": code(method.name),
        "family": plain(method.family),
        "reference": plain(method.reference),
        "capabilities": plain(", ".join(method.capabilities)),
        "file": code(f"trainables/methods/{method.name}.py"),
        "search": code(f"fedtune search {method.name}"),
    }
    return table(("", ""), [(name, value) for name, value in facts.items() if value], "facts")


def _parameters(method: Method) -> Iterable[str]:
    rows = fedtune.methods(method.name)
    inherited = parameters(*method.Config.__bases__) if method.Config.__bases__ != (object,) else {}
    own = [row for row in rows if row["group"] == "method" and row["key"] not in inherited]
    shared = [row for row in rows if row["group"] == "method" and row["key"] in inherited]
    federation = [row for row in rows if row["group"] == "federation"]
    yield "## Parameters"
    yield (
        "Any of them is set with `--set name=value`. A *default search* is what a space covers that names the "
        "parameter and no bounds."
    )
    if own:
        yield from ("### Its own", _table(own))
    if shared:
        yield from ("### Shared with other methods: local training and building blocks", _table(shared))
    yield from ("### The federation, the same for every method", _table(federation))


def _table(rows: Iterable[Mapping[str, Any]]) -> str:
    cells = []
    for row in rows:
        name = code(row["key"]) + (f"\nwhere {code(row['option'])}" if row["option"] else "")
        bounds = plain(row["bounds"]) + (f"\n*default search* {plain(row['tuned'])}" if row["tuned"] else "")
        unit = f" ({plain(row['unit'])})" if row["unit"] else ""
        cells.append(
            (
                name,
                plain(row["symbol"]),
                code(_value(row["default"])),
                bounds,
                plain(row["doc"]) + unit,
                plain(row["source"]),
            )
        )
    return table(COLUMNS, cells, "parameters")


def _value(value: object) -> str:
    return (
        {True: "true", False: "false"}[value]
        if isinstance(value, bool)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )


def _limits(limits: Iterable[Limit]) -> str:
    lines = [
        f"- With {_settings(limit.values)} it is [{plain(registry.method(limit.equals).title)}]({limit.equals}.md)"
        + (f" with {_settings(limit.other)}" if limit.other else "")
        + ", bit for bit."
        for limit in limits
    ]
    if not lines:
        return "No special case of it is another method."
    return "Special cases in which it is another method. The tests hold it to them.\n\n" + "\n".join(lines)


def _spaces(name: str) -> Iterable[str]:
    yield "## Spaces"
    yield f"`fedtune search {name} --space NAME` searches one; [a file of your own](../add-a-space.md) is another."
    for space in fedtune.spaces(name):
        yield f"### {code(space['name'])}"
        source = f" *Source: {plain(space['source'])}.*" if space["source"] else ""
        points = f" A grid search visits {space['cells']} points." if space["cells"] else ""
        yield f"{plain(space['title'])}.{source}{points}"
        conditions = {key: f"{text} (conditions)" for key, text in space["vary"].items()}
        searched = "\n".join(f"{code(key)} {plain(text)}" for key, text in {**space["search"], **conditions}.items())
        rows = {"searched": searched, "fixed": _settings(space["fix"])}
        rows |= {f"profile {profile}": _settings(values) for profile, values in space["profiles"].items()}
        yield table(("", ""), [(name, text) for name, text in rows.items() if text], "facts")


def _settings(values: Mapping[str, object]) -> str:
    return ", ".join(code(f"{key.rstrip('_')}={_value(value)}") for key, value in values.items())


def _code(method: Method, file: str) -> Iterable[str]:
    """The public classes and functions that the method's own file defines, with their source, and its record."""
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    defined = [node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    yield "## Code"
    yield f"What `trainables/methods/{method.name}.py` defines; what it takes from other files is not repeated."
    for name in [*(name for name in defined if not name.startswith("_")), "METHOD"]:
        yield f"::: trainables.methods.{method.name}.{name}\n    options: {{heading_level: 3, members: false}}"
