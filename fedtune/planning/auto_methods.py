"""Which of the methods that are asked for can take part in a search over several, and why the others cannot."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedtune.options import AutoRequest, SearchRequest
from fedtune.planning.auto_request import Options, pairs
from fedtune.planning.preflight import preflight
from fedtune.planning.settings import settled
from search_spaces import presets
from search_spaces.errors import UserError
from search_spaces.metrics import METRICS
from search_spaces.parameter import Value, parameters
from search_spaces.space import Space

if TYPE_CHECKING:
    from trainables.method import Method


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
    options: list[dict[str, Value]] = [{}]
    options += [
        {dimension.key: option}
        for dimension in space.search.values()
        if dimension.parameter.kind in ("choice", "flag")
        for option in dimension.values()
    ]
    for option in options:
        try:
            config = registry.configured(method.name, {**values, **option}).config
        except UserError:
            continue  # such a trial fails by itself
        if method.sends_label_counts(config):
            return "label counts leave its clients in configurations that it would search"
    return ""
