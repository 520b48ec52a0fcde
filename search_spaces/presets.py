"""The named search spaces, in the files of `presets/` beside this one, and files of the user's own.

A file holds the spaces behind one figure or table of a paper, one of each method that is compared there:

    title: Model heterogeneity ρ
    vary:
      rho: [5, 10, 40]
    fix: {omega: 0.1}
    profiles:
      small: {dataset: digits, clients: 10, rounds: 10, lr: 0.05}
      paper: {dataset: svhn, model: cnn, clients: 10, rounds: 200}
    spaces:
      heterofl/rho:                              # HeteroFL's space `rho`: nothing but what all have
        source: DFRD, Table 2 (HeteroFL row)
      dfrd/rho:
        source: DFRD, Table 2 (FedRolex+DFRD rows)
        fix: {base: fedrolex}                    # and omega
        profiles:
          small: {distill_lr: 0.1}               # and data set, clients, rounds and rate

What stands beside `spaces` holds for all of them, and is written as in `search_spaces.space_file`, without `method`. A
space adds to it: `search`, `vary`, `fix` and each profile have the keys of both, with the space's own value where both
have one; of any other key the space's own value counts. The line that names a space is indented by two blanks.

A method without a space `default` has one all the same, made of what its declarations mark with `tune`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from search_spaces.dimension import Dimension
from search_spaces.documents import Document, Node, read
from search_spaces.errors import UserError, unknown
from search_spaces.parameter import Parameter
from search_spaces.space import Space
from search_spaces.space_file import PROFILES, from_document

FOLDER = Path(__file__).parent / "presets"
#: The name of the space that a method is tuned in where no other is named.
DEFAULT = "default"

#: The line that names a space. Files are searched for it, as reading them all takes 40 times as long as one.
_NAMED = re.compile(r"^  (\w+)/(\w+):", re.MULTILINE)
#: How deep mappings under these keys are put together, where it is not one level.
_LEVELS = {"profiles": 2}


@cache
def files() -> dict[str, dict[str, Path]]:
    """The file of every preset, by method and name."""
    found: dict[str, dict[str, Path]] = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        for method, name in _NAMED.findall(path.read_text(encoding="utf-8")):
            found.setdefault(method, {})[name] = path
    return found


def names(method: str) -> list[str]:
    """The presets of `method`, the default one first; empty for a method that has none."""
    return sorted(files().get(method, {}), key=lambda name: (name != DEFAULT, name))


def document(method: str, name: str) -> Document:
    """What its file says of the preset `name` of `method`, as in a file of its own. Raises `KeyError` where there is no
    such preset."""
    whole = _read(files()[method][name])
    shared = {key: node for key, node in whole.root.items.items() if key != "spaces"}
    own = whole.root.items["spaces"].items[f"{method}/{name}"]
    items = {"method": replace(own, value=method, items={})} | shared
    for key, node in own.items.items():
        items[key] = _together(items[key], node, _LEVELS.get(key, 1)) if key in shared else node
    return replace(whole, root=_mapping(own, items))


@cache
def _read(path: Path) -> Document:
    """A file of presets. Plans of many searches ask for the same ones, and reading one takes longer than all else."""
    return read(path, "space")


def _together(shared: Node, own: Node, levels: int) -> Node:
    """The keys of both mappings; `own` where one is none, and below so many levels."""
    if not levels or not shared.is_mapping or not own.is_mapping:
        return own
    items = dict(shared.items)
    for key, node in own.items.items():
        items[key] = _together(items[key], node, levels - 1) if key in items else node
    return _mapping(own, items)


def _mapping(node: Node, items: dict[str, Node]) -> Node:
    return replace(node, value={key: item.value for key, item in items.items()}, items=items)


def load(method: str, name_or_path: str, declared: Mapping[str, Parameter]) -> Space:
    """The space `name_or_path` of `method`: a preset's name, or the path of a YAML file (it ends in .yaml or .yml).

    `declared` is the flat namespace of the method's parameters (`trainables.registry.declared`).
    Raises `UserError` with every problem of the file."""
    if Path(name_or_path).suffix in (".yaml", ".yml"):
        return from_document(read(name_or_path, "space"), method, declared, Path(name_or_path).stem)
    if name_or_path in names(method):
        return from_document(document(method, name_or_path), method, declared, name_or_path)
    if name_or_path == DEFAULT:
        return default(method, declared)
    known = list(dict.fromkeys([DEFAULT, *names(method)]))
    raise UserError(
        unknown(f"space of {method}", name_or_path, known)
        + " A file of your own is given by its path, ending in .yaml."
    )


def default(method: str, declared: Mapping[str, Parameter]) -> Space:
    """The space of everything the declarations mark with `tune`."""
    search = {key: Dimension.of(parameter) for key, parameter in declared.items() if parameter.tune is not False}
    if not search:
        raise UserError(
            f"The method {method} declares nothing to tune, so it has no default space. Write one "
            "(docs/add-a-space.md)."
        )
    return Space(
        DEFAULT,
        method,
        search,
        title=f"{method}, all parameters meant for tuning",
        source="declarations",
        profiles={name: {} for name in PROFILES},
    )
