"""A page per public module, written by mkdocstrings from its docstrings; docs/public-api.md says which are public."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Collection, Mapping

import fedtune
from site_pages.markup import page

_ROW = re.compile(r"^\| `([\w.]+)(\.\*)?` \| (.+) \|$", re.MULTILINE)
#: Modules that have better pages than their docstrings: the methods', and the figures'.
ELSEWHERE = ("trainables.methods.", "analysis.figures.")


def modules(public_api: str) -> dict[str, list[str]]:
    """The modules of the table in docs/public-api.md, each `*` written out, with the names that it gives of each."""
    found: dict[str, list[str]] = {}
    for name, star, text in _ROW.findall(public_api):
        for module in [f"{name}.{below}" for below in _below(name)] if star else [name]:
            found[module] = re.findall(r"`(\w+)`", text)
    return found


def _below(package: str) -> list[str]:
    path = importlib.import_module(package).__path__
    return [info.name for info in pkgutil.iter_modules(path) if not info.name.startswith("_")]


def pages(modules: Mapping[str, Collection[str]]) -> dict[str, str]:
    """`api/<module>.md` for each of them that has no page of another kind."""
    return {
        f"api/{name}.md": _functions() if name == "fedtune" else _module(name, names)
        for name, names in modules.items()
        if not name.startswith(ELSEWHERE)
    }


def _module(name: str, names: Collection[str]) -> str:
    """The module's own names, then those of `names` that it imports, for a type checker alone (they are imported when
    they are first used) or at once; where it has `__all__`, mkdocstrings adds them."""
    tree = ast.parse(inspect.getsource(importlib.import_module(name)))
    typed = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    below = [node for block in typed for node in block.body]
    imports = [node for node in [*tree.body, *below] if isinstance(node, ast.ImportFrom)]
    origin = {alias.asname or alias.name: f"{node.module}.{alias.name}" for node in imports for alias in node.names}
    own = f"::: {name}\n    options: {{show_root_heading: false, show_root_toc_entry: false}}"
    listed = any(isinstance(node, ast.Assign) and "__all__" in ast.unparse(node.targets[0]) for node in tree.body)
    return page(name, own, *([] if listed else [f"::: {origin[found]}" for found in names if found in origin]))


def _functions() -> str:
    """`fedtune` imports its functions when they are first used; mkdocstrings reads source files and cannot see that."""
    parts = []
    for name in fedtune.__all__:
        function = getattr(fedtune, name)
        options = f'{{heading: "fedtune.{name}", toc_label: "{name}"}}'
        parts.append(f"::: {function.__module__}.{function.__qualname__}\n    options: {options}")
    return page("fedtune", (fedtune.__doc__ or "").strip(), *parts)
