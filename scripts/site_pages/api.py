"""A page per public module, written by mkdocstrings from its docstrings; docs/public-api.md says which are public."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, get_type_hints

import fedtune
from fedtune.option import GROUPS, Declared, declared, in_python
from site_pages.markup import block, code, page, plain, table

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
        if function is not inspect.unwrap(function):
            parts += _of_request(name, function)
            continue
        options = f'{{heading: "fedtune.{name}", toc_label: "{name}"}}'
        parts.append(f"::: {function.__module__}.{function.__qualname__}\n    options: {options}")
    return page("fedtune", (fedtune.__doc__ or "").strip(), *parts)


def _of_request(name: str, function: Callable[..., Any]) -> Iterable[str]:
    """A function that takes the options of a request (`fedtune.option.fields_of`), with a table of them."""
    plain_function = inspect.unwrap(function)
    request = get_type_hints(plain_function)["request"]
    signature = inspect.signature(function)
    yield f"## fedtune.{name}"
    written = map(str, signature.parameters.values())
    lines = [re.sub(r"\b(?:collections\.abc|pathlib|typing)\.", "", line) for line in written]
    inner = [f"    {line}," for line in _starred(signature, lines)]
    yield block("\n".join([f"fedtune.{name}(", *inner, f") -> {signature.return_annotation}"]), "python")
    yield from (plain(" ".join(text.split())) for text in inspect.cleandoc(plain_function.__doc__ or "").split("\n\n"))
    options = declared(request).values()
    for group, heading in GROUPS.items():
        found = [one for one in options if one.option.group == group]
        rows = [(code(one.name), plain(in_python(one.help)), plain(in_python(_otherwise(one)))) for one in found]
        if rows:
            yield f"**{heading}**"
            yield table(("argument", "meaning", "default"), rows, "options")


def _starred(signature: inspect.Signature, lines: list[str]) -> Iterable[str]:
    """The lines of the parameters, with a star before those that must be named."""
    kinds = [field.kind for field in signature.parameters.values()]
    for line, kind, before in zip(lines, kinds, [None, *kinds], strict=False):
        if kind is inspect.Parameter.KEYWORD_ONLY and before is not kind:
            yield "*"
        yield line


def _otherwise(one: Declared) -> str:
    """What is taken where the option is left out."""
    given = one.default is inspect.Parameter.empty
    return one.option.default or ("" if given or one.default in (None, (), False) else str(one.default))
