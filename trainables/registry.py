"""Finds the methods: every file in `trainables/methods` that assigns `METHOD`, those of plug-ins (entry points of the
group `fedtune.methods`), and those of a user's own files. No list is edited to add one.

A file of a user's own is named by its path, `fedtune search ./mymethod.py`, or in the environment variable
FEDTUNE_METHODS (`trainables.own_code`). From then on it is known by its method's name.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from search_spaces import plugins
from search_spaces.errors import Shown, UserError, sentence, unknown
from search_spaces.parameter import Parameter, Value, convert_all, defaults, parameters
from trainables import methods as package
from trainables import models, own_code, own_metrics
from trainables.federation import FederationConfig
from trainables.method import Method, executor_problems


@cache
def _packaged() -> dict[str, Method]:
    """The methods of the package and of plug-ins."""
    modules = [
        importlib.import_module(f"{package.__name__}.{info.name}") for info in pkgutil.iter_modules(package.__path__)
    ]
    found = {module.METHOD.name: module.METHOD for module in modules}
    for point in plugins.plugins(plugins.METHODS).values():
        loaded = plugins.load(point)
        plug_in = getattr(loaded, "METHOD", loaded)
        if not isinstance(plug_in, Method) or plug_in.name in found:
            must = "a Method with a name of its own, or a module with such a METHOD"
            raise UserError(
                sentence(f"The plug-in {point.name!r} ({plugins.METHODS})", must, Shown(repr(plug_in)[:80]))
            )
        found[plug_in.name] = plug_in
    return found


def methods() -> dict[str, Method]:
    """Every method by name, sorted; of a user's own files those that FEDTUNE_METHODS or this process has named."""
    for path in own_code.listed("FEDTUNE_METHODS"):
        _method_of(path)
    found = {**_packaged(), **{m.name: m for _, m in _of_files()}}
    return {name: found[name] for name in sorted(found)}


def method(name: str) -> Method:
    """The method of that name. Raises `UserError` with the nearest name."""
    if name in (known := methods()):
        return known[name]
    own_code.run_named()
    if name in (known := methods()):
        return known[name]
    broken = None
    for path in own_code.noted():
        try:
            if _assigns(path, name) and (found := _method_of(path)).name == name:
                return found
        except UserError as error:  # it was named by mistake, or is broken by now; another file may be the method's
            broken = broken or error
    if broken is not None:
        raise broken
    said = unknown("method", name, methods())
    own = "" if "Did you mean" in said else " A method of your own is named by its file, such as ./mymethod.py."
    raise UserError(said + own)


def is_method(name: str) -> bool:
    """Whether there is a method of that name."""
    try:
        return method(name).name == name
    except UserError:
        return False


def named(given: object) -> str:
    """The name of the method that a user has given: its name, the path of its file, or from Python the `Method`, or the
    module that assigns it. Raises `UserError` where there is no such file or it has no method."""
    if isinstance(given, (str, Path)):
        text = str(given)
        return _method_of(own_code.named(text, "method")).name if own_code.is_file(text) else text
    if isinstance(given, Method) and _packaged().get(given.name) is given:
        return given.name
    owner = given if isinstance(given, (Method, ModuleType)) else None
    path = own_code.file_of(owner) if isinstance(owner, ModuleType) else own_code.file_that_has(owner)
    if owner is None or path is None:
        must = "a method's name, the path of its file, or a Method that a file assigns to METHOD"
        raise UserError(sentence("method", must, Shown(repr(given)[:80]), fix="Write it into a file of its own."))
    return _method_of(own_code.named(path, "method")).name


def kind_problems(chosen: Method, config: Any, federation: FederationConfig, kind: str) -> list[str]:
    """Why data of that kind (`trainables.data.dataset`) cannot be trained on; empty where they can."""
    where = federation.dataset
    trained = dict.fromkeys(chosen.architectures(config, federation))
    if kind == "images":
        must = f"another one for {where}, which holds no sequences of tokens"
        return [sentence("model", must, name) for name in trained if models.reads_tokens(name)]
    small = models.SMALL[kind]
    options = declared(chosen.name)["model"].options
    if chosen.images or small not in options:
        why = "whose models are made for images" if not chosen.images else "which generates images"
        return [f"{where} holds {kind}, and {chosen.name}, {why}, needs images. Choose another method."]
    problems = []
    for name in trained:
        if name not in ("auto", small) and not models.is_own(name):
            key = "model" if name == federation.model else "nu"
            got, must = (name, f"auto, {small} or one of your own") if key == "model" else (config.nu, "0")
            problems.append(
                sentence(
                    key,
                    f"{must} for {kind}, as those of {where}",
                    got,
                    fix=f"Use --set {key}={must.partition(',')[0]}.",
                )
            )
    if federation.attack_images:
        problems.append(sentence("attack_images", f"0 for {kind}, as those of {where}", federation.attack_images))
    return problems


def own_file(name: str) -> dict[str, str] | None:
    """Of a method from a user's own file: its name, the file's, and the hash of the content that was run; of a plug-in
    its package in place of the file. None of a method that belongs to fedtune."""
    code = own_code_of(name)
    if code is not None:
        return {"method": name, **code.facts()}
    for point in plugins.plugins(plugins.METHODS).values():
        loaded = plugins.load(point)
        if getattr(loaded, "METHOD", loaded) is method(name):
            return {"method": name, **plugins.facts(point)}
    return None


def own_code_of(name: str) -> own_code.Code | None:
    """The file of a method of a user's own; None of one that belongs to the package."""
    chosen = method(name)
    return next((own_code.code_of(path) for path, found in _of_files() if found.name == chosen.name), None)


def own_codes(name: str, values: Mapping[str, object]) -> tuple[own_code.Code, ...]:
    """The user's own files that hold a trial's method, model or metrics."""
    found = (own_code_of(name), models.own_code_of(values.get("model")))
    of_metrics = own_metrics.own_codes(str(values.get("own_metrics", own_metrics.NONE)))
    return tuple(dict.fromkeys(code for code in (*found, *of_metrics) if code is not None))


def own_files_of(name: str, values: Mapping[str, object]) -> dict[str, dict[str, str]]:
    """What a run records of these files: `method_file`, `model_file`, `metric_file`."""
    found = {
        "method_file": own_file(name),
        "model_file": models.own_file(values.get("model")),
        "metric_file": own_metrics.own_file(str(values.get("own_metrics", own_metrics.NONE))),
    }
    return {kind: facts for kind, facts in found.items() if facts is not None}


def _of_files() -> list[tuple[str, Method]]:
    """The methods of the user's own files that this process has run, with their paths."""
    found = []
    for path in own_code.loaded():
        module = own_code.module(path)
        made = getattr(module, "METHOD", None)
        if isinstance(made, Method):
            found.append((path, made))
    return found


def _assigns(path: Path, name: str) -> bool:
    """Whether the file's text has the name: others need not be run to look for it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    return "METHOD" in text and name in text


def _method_of(path: Path) -> Method:
    """The method that the file assigns to METHOD. Raises `UserError` where it has none, one with the name of
    another, or one with a parameter whose declaration contradicts itself."""
    made = getattr(own_code.module(path), "METHOD", None)
    if not isinstance(made, Method):
        got = Shown("no METHOD" if made is None else type(made).__name__)
        fix = "`fedtune new method NAME` writes an example."
        raise UserError(sentence(f"METHOD of {path.name}", "a trainables.method.Method", got, str(path), fix))
    if made.name in _packaged():
        must = "a name that no method of fedtune has"
        raise UserError(sentence(f"The method of {path.name}", must, made.name, str(path)))
    if contradictions := [text for one in parameters(made.Config).values() for text in one.contradictions(str(path))]:
        raise UserError(*contradictions)
    return made


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
    return possible(name, convert_all(declared(name), values, where), where)


def possible(name: str, values: Mapping[str, Value], where: str = "") -> Configuration:
    """As `configured`, of values by canonical key that have been converted: each is valid by itself."""
    chosen = method(name)
    complete = {**defaults(FederationConfig, chosen.Config), **values}
    federation, config = (
        kind(**{parameter.name: complete[key] for key, parameter in parameters(kind).items()})
        for kind in (FederationConfig, chosen.Config)
    )
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
    if federation.executor not in ("auto", "loop") and models.is_own(federation.model):
        must = "auto or loop for a model of your own, which is not known to run as one program"
        problems.append(sentence("executor", must, federation.executor, where))
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
