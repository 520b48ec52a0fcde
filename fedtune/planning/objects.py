"""What a program hands over in place of a name or a path: a method, a model's class, data, a space. Each becomes what a
command line would have named, so that a run records it and can be resumed."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any

from fedtune.options import AutoRequest
from search_spaces import files
from search_spaces.errors import Shown, UserError, sentence
from trainables import own_code
from trainables.data import objects


def spelled(asked: Any) -> dict[str, Any]:
    """By field of a request the name or the path that says the same; of metrics of the user's own, `own_metrics` is
    what computes them. Raises `UserError` where one of its objects has no file."""
    from trainables import registry  # which needs PyTorch

    own_code.check_not_running()
    changes: dict[str, Any] = {}
    fields = {field.name for field in dataclasses.fields(asked)}
    for name, named in (("method", registry.named), ("dataset", objects.reference), ("model", _model)):
        if name in fields and (value := getattr(asked, name)) is not None:
            changes[name] = named(value)
    if "metric" in fields and asked.metric is not None:
        changes |= _metrics(asked)
    if "space" in fields and isinstance(asked.space, Mapping):
        changes["space"] = _space(asked.space, changes.get("method", asked.method))
    return changes


def _model(given: object) -> str:
    """A model's name, `mynet.py:Net`, or a class that stands in a file."""
    return given if isinstance(given, str) else own_code.object_reference(given, "model", "class")


def _metrics(asked: Any) -> dict[str, Any]:
    """The names of a request's metrics, and what computes those of the user's own. Raises `UserError` where there is no
    such function."""
    from trainables import own_metrics

    one = isinstance(asked.metric, str) or callable(asked.metric)
    names, found = [], list(asked.own_metrics)
    for given in [asked.metric] if one else asked.metric:
        name = own_code.object_reference(given, "metric", "function") if callable(given) else str(given)
        if own_metrics.is_own(name):
            name, listed = own_metrics.reference(name)
            found.append(listed)
        names.append(name)
    metric: Any = names[0] if one and isinstance(asked, AutoRequest) else names
    return {"metric": metric, "own_metrics": tuple(dict.fromkeys(found))}


def _space(given: Mapping[str, Any], method: str) -> str:
    """The path of a file in the cache folder that says the same as the mapping: what such a file holds, or what it
    holds under `search`. A list are values there, a pair of numbers in a tuple an interval."""
    import yaml

    said = dict(given) if "search" in given or "vary" in given else {"search": dict(given)}
    said = {"method": method, **said}
    said["search"] = {str(key): _entry(str(key), value) for key, value in dict(said.get("search") or {}).items()}
    try:
        text = yaml.safe_dump(said, sort_keys=False, allow_unicode=True)
    except yaml.YAMLError as error:
        raise UserError(sentence("space", "made of numbers, texts, lists and mappings", Shown(str(error)))) from error
    content = hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
    return objects.kept(content, "own.yaml", lambda path: files.replace(path, text))


def _entry(key: str, value: object) -> object:
    """What a space file says of one parameter."""
    if isinstance(value, tuple):
        if len(value) != 2:
            raise UserError(sentence(key, "a pair (low, high), a list of values, or a mapping", value))
        return {"low": value[0], "high": value[1]}
    if isinstance(value, list):
        return {"options" if any(isinstance(one, str) for one in value) else "values": value}
    return value
