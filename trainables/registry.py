"""Finds the methods: every file in `trainables/methods` that assigns `METHOD`. No list is edited to add one.

Further files can be named in the environment variable FEDTUNE_METHODS (paths separated like PATH), so a method can be
tried without touching the installed package.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from search_spaces import own_files
from search_spaces.errors import UserError, sentence, unknown
from search_spaces.parameter import Parameter, Value, build, convert_all, defaults, parameters
from trainables import methods as package
from trainables import models
from trainables.federation import FederationConfig
from trainables.method import Method, executor_problems

#: How the modules of a user's own files are called.
_OWN = "fedtune_method_"


@cache
def methods() -> dict[str, Method]:
    """Every method by name, sorted."""
    modules = [
        importlib.import_module(f"{package.__name__}.{info.name}") for info in pkgutil.iter_modules(package.__path__)
    ]
    own = own_files.listed("FEDTUNE_METHODS")
    modules += [own_files.load(path, f"{_OWN}{path.stem}", "FEDTUNE_METHODS") for path in own]
    found = [module.METHOD for module in modules]
    return {m.name: m for m in sorted(found, key=lambda m: m.name)}


def method(name: str) -> Method:
    """The method of that name. Raises `UserError` with the nearest name."""
    if name not in methods():
        raise UserError(unknown("method", name, methods()))
    return methods()[name]


def own_file(name: str) -> dict[str, str] | None:
    """Of a method from a user's own file (FEDTUNE_METHODS): its name, the file's, and the hash of the file's content as
    it is now. None of a method that belongs to the package."""
    path = _own_files().get(method(name).name)
    return None if path is None else {"method": name, **own_files.facts(path)}


def _own_files() -> dict[str, Path]:
    """Of every method of a user's own file, that file."""
    found = [module for name, module in sys.modules.items() if name.startswith(_OWN)]
    return {module.METHOD.name: Path(str(module.__file__)) for module in found if hasattr(module, "METHOD")}


def declared(name: str) -> dict[str, Parameter]:
    """Every parameter of a trial of that method by key: the federation's, then the method's."""
    return parameters(FederationConfig, method(name).Config)


@dataclass(frozen=True)
class Configuration:
    """A configuration of a method that is complete, valid and possible."""

    #: Every parameter by key.
    values: dict[str, Value]
    #: The same as the dataclasses that declare them.
    federation: FederationConfig
    config: Any


def resolve(name: str, values: Mapping[str, object], where: str = "") -> dict[str, Value]:
    """`values` completed with the defaults, all valid and possible together. Raises one `UserError` with every
    problem."""
    return configured(name, values, where).values


def configured(name: str, values: Mapping[str, object], where: str = "") -> Configuration:
    """As `resolve`, with what it builds on the way."""
    chosen = method(name)
    complete = defaults(FederationConfig, chosen.Config) | convert_all(declared(name), values, where)
    federation = build(FederationConfig, complete)
    config: Any = build(chosen.Config, complete)
    problems = list(chosen.check(config, federation))
    if federation.rho > 0 and chosen.widths == "equal":
        able = ", ".join(m.name for m in methods().values() if m.widths == "any")
        problems.append(
            sentence(
                "rho",
                f"0 for {name}, whose clients all train the same model",
                federation.rho,
                where,
                f"Methods with sub-models of different widths: {able}.",
            )
        )
    problems += executor_problems(federation.executor, chosen, config)
    if federation.batch_norm == "running":
        trained = chosen.architectures(config, federation)
        if not any(model == "auto" or models.has_batch_norm(model) for model in trained):
            one = " or ".join(dict.fromkeys(trained))
            problems.append(
                sentence(
                    "batch_norm",
                    f"batch for model {one}, which has no batch normalisation",
                    "running",
                    where,
                    "Use --set batch_norm=batch.",
                )
            )
    if problems:
        raise UserError(*problems)
    return Configuration(complete, federation, config)
