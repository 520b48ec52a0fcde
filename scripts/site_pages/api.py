"""A page per public module, written by mkdocstrings from its docstrings; docs/public-api.md says which are public."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterable

import fedtune
from site_pages.markup import page

_ROW = re.compile(r"^\| `([\w.]+)(\.\*)?` \|", re.MULTILINE)
#: Modules that have better pages than their docstrings: the methods', and the figures'.
ELSEWHERE = ("trainables.methods.", "analysis.figures.")


def modules(public_api: str) -> list[str]:
    """The modules that the table of docs/public-api.md names, in its order, each `*` written out."""
    found: list[str] = []
    for name, star in _ROW.findall(public_api):
        found += [f"{name}.{info}" for info in _below(name)] if star else [name]
    return found


def _below(package: str) -> list[str]:
    path = importlib.import_module(package).__path__
    return [info.name for info in pkgutil.iter_modules(path) if not info.name.startswith("_")]


def pages(modules: Iterable[str]) -> dict[str, str]:
    """`api/<module>.md` for each of them that has no page of another kind."""
    return {
        f"api/{name}.md": _functions() if name == "fedtune" else _module(name)
        for name in modules
        if not name.startswith(ELSEWHERE)
    }


def _module(name: str) -> str:
    return page(name, f"::: {name}\n    options: {{show_root_heading: false, show_root_toc_entry: false}}")


def _functions() -> str:
    """`fedtune` imports its functions when they are first used; mkdocstrings reads source files and cannot see that."""
    parts = []
    for name in fedtune.__all__:
        function = getattr(fedtune, name)
        options = f'{{heading: "fedtune.{name}", toc_label: "{name}"}}'
        parts.append(f"::: {function.__module__}.{function.__qualname__}\n    options: {options}")
    doc = (fedtune.__doc__ or "").strip()
    return page("fedtune", doc, *parts)
