"""What a user asks of `fedtune auto`: the checks of every option by itself, which of the methods that are asked for can
take part, and why the others cannot."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedtune import option
from fedtune.options import AutoRequest, SearchRequest
from fedtune.planning import checks
from fedtune.planning.objects import model_of
from fedtune.planning.preflight import preflight
from fedtune.planning.selection import recorded
from fedtune.planning.settings import data_of, settled
from search_spaces import presets
from search_spaces.errors import UserError, sentence, unknown
from search_spaces.metrics import METRICS
from search_spaces.parameter import Value, canonical, parameters
from search_spaces.requirements import Requirement, asked
from search_spaces.space import Space
from trainables.data import own

if TYPE_CHECKING:
    from trainables.method import Method

ALL = "all"

_COUNT = re.compile(r"(\d+)\s*(?:seed-)?rounds")
_BYTES = re.compile(r"(\d+(?:\.\d+)?(?:e\d+)?)\s*([kmgt]?)b")
_SCALE = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}


@dataclass(frozen=True)
class Options:
    """The request's options, checked."""

    #: In seconds of wall clock, seed-rounds or bytes.
    budget: float
    unit: str
    metric: str
    require: tuple[Requirement, ...]
    most_bytes_up: float | None
    methods: tuple[str, ...]
    #: Whether none of them is asked for by its own name.
    every: bool


def options(request: AutoRequest, problems: list[str]) -> Options:
    """Every option by itself. What cannot be used is added to `problems`."""
    problems.extend(option.problems(request))
    if request.equal and request.least is not None:
        problems.append("--equal gives every method the same part of the budget, so --least would change nothing.")
    if _is_file(request.space):
        fix = "A file holds the space of one method: fedtune search METHOD --space FILE."
        problems.append(sentence("space", "the name of a space of the methods", request.space, "--space", fix))
    budget, unit = _budget(request.budget, problems)
    most = None if request.max_bytes_up is None else _bytes(request.max_bytes_up)
    if request.max_bytes_up is not None and most is None:
        problems.append(sentence("max-bytes-up", "an amount such as 50MB", request.max_bytes_up, "--max-bytes-up"))
    metric = _metric(request, problems)
    require = asked(request.require, "validation", problems)
    return Options(budget, unit, metric, require, most, *_methods(request, problems))


def _budget(text: str, problems: list[str]) -> tuple[float, str]:
    wanted = str(text).strip().lower()
    if (count := _COUNT.fullmatch(wanted)) is not None and int(count[1]) > 0:
        return float(count[1]), "seed-rounds"
    if (amount := _bytes(wanted)) is not None:
        return amount, "bytes"
    if wanted and not wanted[-1].isdigit():
        found: list[str] = []
        seconds = checks.seconds_of(wanted, found)
        if seconds is not None:
            return seconds, "seconds"
    must = (
        "a length such as 30m or 2h, a count such as 600rounds (rounds of single federations), or traffic such as 2GB"
    )
    problems.append(sentence("budget", must, text, "--budget"))
    return math.inf, "seconds"


def _bytes(text: str) -> float | None:
    """`50MB` in bytes; None for something else."""
    match = _BYTES.fullmatch(str(text).strip().lower())
    found = 0.0 if match is None else float(match[1]) * _SCALE[match[2]]
    return found if 0 < found < 1e300 else None


def _metric(request: AutoRequest, problems: list[str]) -> str:
    """The recorded name of the metric to select by."""
    if request.metric is None:
        return "val_global_accuracy"
    checks.known("metric", canonical(request.metric), METRICS, problems, "--metric")
    (name,) = recorded([request.metric], "validation")
    return name


def _methods(request: AutoRequest, problems: list[str]) -> tuple[tuple[str, ...], bool]:
    """The names of all methods that are asked for, in the order given (`all` and those of a family: by name), and
    whether none is asked for by its own name."""
    from trainables import registry

    asked = tuple(dict.fromkeys(registry.named(name.strip()) for text in request.methods for name in text.split(",")))
    known = registry.methods()
    if not asked or asked == ("",):
        problems.append("No method is named. Give --methods fedavg,fedprox, or --methods all.")
    found: list[str] = []
    for name in filter(None, asked):
        within = [one for one, method in known.items() if name == ALL or name.lower() in method.family.lower()]
        if name not in known and not within:
            families = sorted({method.family for method in known.values()})
            problems.append(unknown("method or family", name, (*known, *families), "--methods"))
        found += [name] if name in known else within
    return tuple(dict.fromkeys(found)), not any(name in known for name in asked)


def settings(request: AutoRequest, methods: Sequence[str], problems: list[str]) -> dict[str, dict[str, Any]]:
    """By method, what the request sets: the conditions that all methods share, or those of the space that it names, and
    what `--set` says of each."""
    if not methods:
        return {}  # told already
    from search_spaces.parameter import defaults
    from trainables import registry
    from trainables.federation import FederationConfig

    spaces = {name: None for method in methods for name in (presets.DEFAULT, *presets.names(method))}
    if request.space not in spaces:
        if not _is_file(request.space):
            problems.append(unknown("space", request.space, spaces, "--space"))
        return {}
    shared: dict[str, Any] = dict(defaults(FederationConfig))
    given = pairs(request, problems)
    of_data = {canonical(name): str(value) for name, value in given if canonical(name) in own.OPTIONS}
    asked: list[tuple[str, object]] = [*data_of(request, of_data, problems).items()]
    asked += [] if request.rounds is None else [("rounds", request.rounds)]
    asked += [] if request.model is None else [("model", model_of(request.model))]
    asked += [(name, value) for name, value in given if canonical(name) not in of_data]
    found = {method: _of_space(request.space, method, shared) or dict(shared) for method in methods}
    for name, value in asked:
        method, dot, key = name.partition(".")
        method, key = (method, canonical(key)) if dot else ("", canonical(name))
        takers = [one for one in methods if (one == method or not dot) and key in registry.declared(one)]
        if not takers:
            every = {key for one in methods if one == method or not dot for key in registry.declared(one)}
            problems.append(unknown("parameter", name, every or set(methods), "--set"))
        for one in takers:
            try:
                found[one][key] = registry.declared(one)[key].convert(value, "--set")
            except UserError as error:
                problems.extend(problem for problem in error.problems if problem not in problems)
    return found


def _of_space(name: str, method: str, shared: Mapping[str, Any]) -> dict[str, Any]:
    """The conditions of the method's space of this name, what it fixes and the method's declared values, but for what
    it searches or asks for several values of. None of the default one, whose conditions are one paper's choice, nor
    where there is no such space: the method is left out."""
    if name == presets.DEFAULT or name not in presets.names(method):
        return {}
    values = settled(SearchRequest(method, space=name), []).values
    return {key: values[key] for key in shared if key in values}


def _is_file(space: str) -> bool:
    return "/" in space or "." in space


def pairs(request: AutoRequest, problems: list[str]) -> list[tuple[str, object]]:
    """`--set`, in parts: names, and values as given. What is not a pair is added to `problems`."""
    if isinstance(request.set, Mapping):
        return list(request.set.items())
    found: list[tuple[str, object]] = []
    for text in request.set:
        name, equals, raw = text.partition("=")
        if not equals or not name.strip():
            problems.append(sentence("--set", "name=value or method.name=value", text))
        else:
            found.append((name.strip(), raw.strip()))
    return found


@dataclass(frozen=True)
class Able:
    """A method that can take part."""

    name: str
    title: str
    space: Space
    #: Every parameter that is not searched.
    values: Mapping[str, Value]
    #: Every parameter at the paper's values, or, where these lie outside the space, in its middle.
    typical: Mapping[str, Value]
    #: For the provenance of its runs.
    facts: Mapping[str, Any]


class Unable(Exception):
    """A method cannot take part; the text says why."""


def able(
    name: str, request: AutoRequest, options: Options, given: Mapping[str, Any], seed: int, device: str | None
) -> Able:
    """The method as it takes part, with the conditions that are `given` to all. Raises `Unable`."""
    from fedtune.planning.plan import middle_values
    from trainables import registry
    from trainables.method import no_global_model

    method = registry.method(name)
    metric = METRICS[options.metric]
    required = tuple(one.metric for one in options.require)
    if method.widths == "equal" and given.get("rho"):
        raise Unable("its clients all train the same model, and the setting has models of different widths")
    for needed in (metric, *(METRICS[name] for name in required)):
        if needed.of_global_model and method.global_model is no_global_model:
            raise Unable(f"it has no global model, and {needed.name} is measured of one")
    space, values = _space(name, request.space, given, options.metric)
    if space.vary:
        raise Unable(f"its space asks for several values of {' and '.join(space.vary)}; fix one with --set")
    if not space.search:
        raise Unable("every parameter of its space is fixed by --set")
    declared = space.declared_point()
    point = middle_values(space.search.values()) if declared is None else declared
    if request.no_label_counts and (why := _sends_label_counts(method, space, {**values, **point})):
        raise Unable(why)
    problems: list[str] = []
    checked = preflight(
        name, {**values, **point}, (seed,), request.data_dir, problems, (metric.name,), device, required
    )
    if problems:
        raise Unable(" ".join(problems).rstrip("."))
    return Able(name, method.title, space, values, checked.values, checked.facts)


def _space(name: str, named: str, given: Mapping[str, Any], metric: str) -> tuple[Space, Mapping[str, Value]]:
    """The method's space of the name `named` under the conditions `given`, and the values of what it does not search.

    Of what a default space fixes, the method's own parameters stay: the conditions of the experiment are the request's,
    and what the space says of local training is one paper's choice, so the method's declared values hold there."""
    from trainables import registry
    from trainables.local import LocalTraining

    declared = registry.declared(name)
    preset = presets.load(name, named, declared)
    fixed = {**preset.fix, **preset.profiles.get("small", {})} if named == presets.DEFAULT else {}
    local = parameters(LocalTraining)
    common = {key: declared[key].default for key in fixed if key in local and key in declared}
    problems: list[str] = []
    settings = settled(SearchRequest(name, space=named, set={**common, **given}), problems)
    if problems:
        raise UserError(*problems)
    space = dataclasses.replace(settings.space, metric=(metric,), published=None, profiles={})
    return space, settings.values


def check_conditions(found: Sequence[Able], request: AutoRequest) -> None:
    """Raises `UserError` where the methods' spaces set data, clients or local training differently, unless `--set` does
    so for one method."""
    from trainables.federation import FederationConfig
    from trainables.local import LocalTraining

    own = {key for name, _ in pairs(request, []) for _, dot, key in [name.partition(".")] if dot}
    keys = [key for key in {**parameters(FederationConfig), **parameters(LocalTraining)} if key not in own]
    problems = []
    for key in keys if request.space != presets.DEFAULT else ():
        values = {one.name: one.values[key] for one in found if key in one.values}
        if len(set(values.values())) > 1:
            told = ", ".join(f"{value} in that of {name}" for name, value in values.items())
            problems.append(
                f"The methods' spaces {request.space!r} must have the same {key}, got {told}. Give one value with "
                f"--set {key}=VALUE."
            )
    if problems:
        raise UserError(*problems)


def _sends_label_counts(method: Method, space: Space, values: Mapping[str, Value]) -> str:
    """Why the method cannot be used where label counts must not leave the clients; empty where it can."""
    from trainables import registry

    if isinstance(method.shares_label_counts, bool):
        return "label counts leave its clients" if method.shares_label_counts else ""
    choices: list[dict[str, Value]] = [{}]
    choices += [
        {dimension.key: word}
        for dimension in space.search.values()
        if dimension.parameter.kind in ("choice", "flag")
        for word in dimension.values()
    ]
    for choice in choices:
        try:
            config = registry.configured(method.name, {**values, **choice}).config
        except UserError:
            continue  # such a trial fails by itself
        if method.sends_label_counts(config):
            return "label counts leave its clients in configurations that it would search"
    return ""
