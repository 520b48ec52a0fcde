"""The named search spaces: presets/<method>/<space>.yaml beside this file, and files of the user's own.

`search_spaces.space_file` describes what such a file holds. A method without a default.yaml has a default space all
the same, made of what its declarations mark with `tune`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from search_spaces.dimension import Dimension
from search_spaces.documents import read
from search_spaces.errors import UserError, unknown
from search_spaces.parameter import Parameter
from search_spaces.space import Space
from search_spaces.space_file import PROFILES, from_document

FOLDER = Path(__file__).parent / "presets"
#: The name of the space that a method is tuned in where no other is named.
DEFAULT = "default"


def names(method: str) -> list[str]:
    """The presets of `method`, the default one first; empty for a method that has none."""
    found = sorted(path.stem for path in (FOLDER / method).glob("*.yaml"))
    return sorted(found, key=lambda name: name != DEFAULT)


def load(method: str, name_or_path: str, declared: Mapping[str, Parameter]) -> Space:
    """The space `name_or_path` of `method`: a preset's name, or the path of a YAML file (it ends in .yaml or .yml).

    `declared` is the flat namespace of the method's parameters (`trainables.registry.declared`).
    Raises `UserError` with every problem of the file."""
    if Path(name_or_path).suffix in (".yaml", ".yml"):
        return from_document(read(name_or_path, "space"), method, declared)
    path = FOLDER / method / f"{name_or_path}.yaml"
    if name_or_path in names(method):
        return from_document(read(path, "space"), method, declared)
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
