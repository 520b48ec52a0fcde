"""What a request has to keep to where its space varies conditions of the experiment, and what the user is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from search_spaces.errors import UserError
from search_spaces.parameter import Value
from search_spaces.space import Space

if TYPE_CHECKING:
    from fedtune.options import SearchRequest
    from fedtune.planning.preflight import Checked

#: Trials of a search that says no number of them.
TRIALS = 30


def whole_blocks(space: Space, profiles: object) -> int:
    """How many trials a search has that was given no number: the profile's, or 30, rounded up so that the last
    configuration is run under every condition too."""
    asked = TRIALS if profiles is None else int(str(profiles))
    conditions = len(space.conditions())
    return -(-asked // conditions) * conditions


def conditions_allow(space: Space, sampler: str, problems: list[str], *, races: bool, starts: bool) -> None:
    """Adds a problem for choices that cannot be combined with conditions.

    races: whether it is a race; starts: whether it begins with what earlier runs found."""
    if not space.search and space.vary and sampler != "grid":
        problems.append(
            f"The space varies only conditions of the experiment ({', '.join(space.vary)}), so there is nothing for "
            f"the sampler {sampler} to propose. Leave --sampler out."
        )
    if len(space.conditions()) < 2:
        return
    one = f"Choose one condition with --set, such as --set {named(space.conditions()[0]).replace(', ', ' --set ')}"
    if races:
        problems.append(f"A race compares configurations under one condition. {one}, or leave --race out.")
    if starts and sampler != "grid":
        problems.append(f"--warm-start begins a search under one condition. {one}, or leave --warm-start out.")


def crossing_notes(trials: int, sampler: str, space: Space) -> list[str]:
    """How the trials are spread over the conditions."""
    conditions = space.conditions()
    if len(conditions) < 2:
        return []
    values = "; ".join(
        f"{key} {', '.join(_shown(value) for value in dimension.values())}" for key, dimension in space.vary.items()
    )
    whole, rest = divmod(trials, len(conditions))
    several = f"{whole} configuration{'s' * (whole != 1)}" if space.search else "the fixed configuration"
    part = f", and one more under the first {rest} of them" if rest else ""
    said = f"{trials} trials: {several} under each of {len(conditions)} conditions ({values}){part}."
    asks = sampler != "grid" and space.search
    return [f"{said} The sampler looks for the configuration, never for a condition." if asks else said]


def under_conditions(
    request: SearchRequest, space: Space, checked: Checked, seeds: Sequence[int], problems: list[str]
) -> dict[str, Any]:
    """Builds the data of every condition once, so that a data set that cannot be had, or an impossible federation, is
    found before anything is created. Returns what is recorded where data sets are varied: `datasets`, hashes by name.

    Does nothing where there are `problems` already; what is found is added to them."""
    conditions = space.conditions()
    if problems or len(conditions) < 2:
        return {}
    found: dict[str, str] = {}
    for condition in conditions:
        try:
            found |= _built(request, {**checked.values, **condition}, seeds[0])
        except UserError as error:
            problems += [f"Under the condition {named(condition)}: {problem}" for problem in error.problems]
    return {"datasets": found} if "dataset" in space.vary else {}


def _built(request: SearchRequest, values: Mapping[str, Value], seed: int) -> dict[str, str]:
    """The hash of the data set by its name."""
    import torch

    from trainables import data, registry
    from trainables.simulation import federated_data

    settings = registry.configured(request.method, {**values, "precision": "fp32", "executor": "loop"}).federation
    federated_data.build(settings, seed, torch.device("cpu"), request.data_dir)
    name = str(values["dataset"])
    return {name: data.load(name, request.data_dir).hash}


def named(condition: Mapping[str, Value]) -> str:
    """`omega=0.1, partition=dir_class`."""
    return ", ".join(f"{key}={_shown(value)}" for key, value in condition.items())


def _shown(value: Value) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
