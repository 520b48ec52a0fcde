"""Dimensions and declared parameters as plain data: what `space.json` holds of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from search_spaces.dimension import Dimension
from search_spaces.parameter import Parameter


def dimension_to_json(dimension: Dimension) -> dict[str, Any]:
    """A dimension as plain data: what readers of `space.json` need to label an axis, and the whole declaration."""
    parameter = dimension.parameter
    return {
        "key": dimension.key,
        "kind": parameter.kind,
        "label": parameter.label,
        "symbol": parameter.symbol,
        "doc": parameter.doc,
        "source": parameter.source,
        "unit": parameter.unit,
        "low": dimension.low,
        "high": dimension.high,
        "log": dimension.log,
        "step": dimension.step,
        "options": list(dimension.options),
        "grid": None if dimension.grid is None else list(dimension.grid),
        "cost": dimension.cost,
        "children": {
            option: [dimension_to_json(child) for child in children] for option, children in dimension.children.items()
        },
        "declared": parameter_to_json(parameter),
    }


def dimension_from_json(data: Mapping[str, Any]) -> Dimension:
    """The inverse of `dimension_to_json`."""
    return Dimension(
        parameter_from_json(data["declared"]),
        data["low"],
        data["high"],
        data["log"],
        data["step"],
        tuple(data["options"]),
        None if data["grid"] is None else tuple(data["grid"]),
        {
            option: tuple(dimension_from_json(child) for child in children)
            for option, children in data["children"].items()
        },
        data["cost"],
    )


def parameter_to_json(parameter: Parameter) -> dict[str, Any]:
    """A declaration as plain data."""
    data = {f.name: getattr(parameter, f.name) for f in dataclasses.fields(parameter)}
    data |= {"options": list(parameter.options), "names": dict(parameter.names)}
    data["children"] = {
        option: [parameter_to_json(child) for child in children] for option, children in parameter.children.items()
    }
    data["tune"] = list(parameter.tune) if isinstance(parameter.tune, tuple) else parameter.tune
    return data


def parameter_from_json(data: Mapping[str, Any]) -> Parameter:
    """The inverse of `parameter_to_json`."""
    fields = dict(data)
    fields["options"] = tuple(data["options"])
    fields["children"] = {
        option: tuple(parameter_from_json(child) for child in children) for option, children in data["children"].items()
    }
    fields["tune"] = tuple(data["tune"]) if isinstance(data["tune"], list) else data["tune"]
    return Parameter(**fields)
