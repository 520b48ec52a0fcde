"""Metrics of a user's own: a function of a Python file, `--metric ./mymetric.py:balanced`, or of a plug-in.

    def balanced(logits, labels): ...     # tensors (n, classes) and (n,), on the CPU; returns a number
    balanced.direction = "minimize"       # where less is better

`title` and `unit` may be given likewise; the unit "share" is that of a number between 0 and 1, told in per cent.

The function is asked for the global model on the whole test set (`balanced`) and on the validation share
(`val_balanced`), and for each client's own model on its share of these (`local_balanced`, `val_local_balanced`), of
which the mean weighted by client size is recorded, as in `local_accuracy`. A client for whose share the function gives
no finite number has no part in that mean. The federation's parameter `own_metrics` lists the functions, so trials,
exported configurations and final runs measure them alike.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from search_spaces import metrics, plugins
from search_spaces.errors import Shown, UserError, sentence
from search_spaces.own_files import digest
from trainables import own_code

#: The value of the parameter `own_metrics` where there are none.
NONE = "none"


@dataclass(frozen=True)
class Measure:
    """A metric of a user's own, as it is computed."""

    name: str
    function: Callable[[Tensor, Tensor], Any]

    def __call__(self, logits: Tensor, labels: Tensor) -> float:
        """The number for logits `(n, C)` and labels `(n,)` on any device. Raises `UserError` where the function
        fails, or returns something else."""
        try:
            found = self.function(logits.detach().float().cpu().clone(), labels.cpu().clone())
        except Exception as error:  # whatever somebody's function raises
            raise UserError(f"The metric {self.name} cannot be computed: {type(error).__name__}: {error}.") from error
        try:
            return float(found)
        except (TypeError, ValueError) as error:
            must, got = "one number", Shown(type(found).__name__)
            raise UserError(sentence(f"What the metric {self.name} returns", must, got)) from error


def references(text: str) -> tuple[str, ...]:
    """The functions that a value of `own_metrics` lists."""
    return () if text == NONE else tuple(dict.fromkeys(one.strip() for one in text.split(",") if one.strip()))


def named(text: str) -> str:
    """What a user gave as `own_metrics`, as it is recorded: of `mymetric.py:balanced` the whole path. Raises
    `UserError` where there is no such file or function."""
    found = [reference(one)[1] for one in references(text)]
    return ",".join(dict.fromkeys(found)) or NONE


def is_own(metric: str) -> bool:
    """Whether this text, given as a metric, names a user's own: by a file, or a plug-in that no metric of fedtune
    hides."""
    plain = metrics.plain(metric)
    known = metrics.METRICS.get(plain)
    return own_code.split(metric) is not None or (
        plain in plugins.plugins(plugins.METRICS) and (known is None or known.own)
    )


def reference(metric: str) -> tuple[str, str]:
    """Of a text that names a user's own metric: the metric's name, and the function as `own_metrics` lists it. The
    metric is declared by that. Raises `UserError` where there is no such function.

    `mymetric.py:local_balanced` is `balanced` of clients' models; a file alone names its only function."""
    found = own_code.split(metric)
    if found is None:
        plain = metrics.plain(metric)
        _function(plain)
        return metric, plain
    path, name = str(own_code.named(found[0], "metric")), found[1]
    module = own_code.module(path)
    functions = [one for one in own_code.defined(module, inspect.isfunction) if not one.startswith("_")]
    if not name and len(functions) == 1:
        name = functions[0]
    if metrics.plain(name) not in functions:
        got, fix = Shown(name or ", ".join(functions) or "none"), "Write FILE.py:FUNCTION."
        raise UserError(sentence("metric", f"one of the functions of {path}", got, "--metric", fix))
    whole = f"{path}:{metrics.plain(name)}"
    _function(whole)
    return name, whole


def measures(text: str, classes: int) -> tuple[Measure, ...]:
    """The metrics that a value of `own_metrics` lists, each tried on one sample of every class. Raises `UserError`
    where one cannot be computed."""
    found = tuple(map(_function, references(text)))
    for one in found:
        one(torch.eye(classes), torch.arange(classes))
    return found


def own_codes(text: str) -> tuple[own_code.Code, ...]:
    """The files that hold these functions."""
    paths = [found[0] for one in references(text) if (found := own_code.split(one)) is not None]
    return tuple(own_code.code_of(path) for path in dict.fromkeys(paths))


def own_file(text: str) -> dict[str, str] | None:
    """What a run records of these functions: their names, the files' names or plug-ins' packages, and one hash of all
    contents. None where there are none."""
    if not references(text):
        return None
    facts = [
        own_code.code_of(found[0]).facts()
        if (found := own_code.split(one)) is not None
        else plugins.facts(_plug_in(one))
        for one in references(text)
    ]
    hashes = list(dict.fromkeys(one["hash"] for one in facts))
    return {
        "metric": text,
        "file": ", ".join(dict.fromkeys(one["file"] for one in facts)),
        "hash": hashes[0] if len(hashes) == 1 else digest(" ".join(hashes).encode()),
    }


def declare(listed: Iterable[str]) -> None:
    """Makes these functions known as metrics. Raises `UserError` where one is in a file that nobody has named."""
    for one in listed:
        _function(one)


def _plug_in(name: str) -> Any:
    found = plugins.plugins(plugins.METRICS)
    if name not in found:
        must = "FILE.py:FUNCTION or the name of a plug-in's metric"
        raise UserError(sentence("own_metrics", must, name, "--set", f"Plug-ins: {', '.join(found) or 'none'}."))
    return found[name]


def _function(listed: str) -> Measure:
    """The function that `own_metrics` lists so, declared as a metric."""
    found = own_code.split(listed)
    if found is None:
        function, name, where = plugins.load(_plug_in(listed)), listed, f"the plug-in {listed!r}"
    else:
        function, name, where = getattr(own_code.module(found[0]), found[1], None), found[1], found[0]
    if not callable(function):
        must = "a function of logits and labels"
        raise UserError(sentence(f"The metric {name or listed}", must, Shown(type(function).__name__), where))
    said: Sequence[str] = [
        str(getattr(function, key, usual))
        for key, usual in (("direction", "maximize"), ("title", name.replace("_", " ").capitalize()), ("unit", ""))
    ]
    metrics.declare(name, said[0], said[1], said[2], where)
    return Measure(name, function)
