"""A search space written in YAML.

    method: dfrd
    title: EMA generator, α × λ
    source: DFRD, Fig. 5
    search:
      alpha:  {grid: [0.25, 0.5, 0.75, 1.0]}     # numbers: low, high, log, step or grid, or values
      local_steps: {low: 5, high: 50, cost: 0.8} # what it adds to the cost of a round (`search_spaces.cost`)
      merge_op: {options: [mul, add]}            # choices: options (a mapping where an option owns sub-parameters)
      use_ema: {}                                # as declared
    vary:                                        # conditions of the experiment, never optimised, each a list of values
      omega: [1, 0.1, 0.01]
    fix: {base: fedrolex, omega: 0.1}
    profiles:
      small: {rounds: 10}
      paper: {dataset: svhn, rounds: 200, seeds: 3, select_on_test: true}
    figures: [heatmap]
    metric: val_global_accuracy
    one_at_a_time: true                          # a grid search varies one parameter, the others at their defaults

Hyper-parameters stand under `search`, conditions of the experiment under `vary` (`search_spaces.space_entries`).

A space narrows what the method declares; it never widens a bound and never invents a parameter. Every problem of a
file is reported, with its line, in one `UserError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from search_spaces import cost
from search_spaces.dimension import Dimension
from search_spaces.documents import Document, Node
from search_spaces.errors import Shown, UserError, unknown
from search_spaces.metrics import METRICS
from search_spaces.parameter import Parameter, Value
from search_spaces.space import Space
from search_spaces.space_entries import Reader, read_condition, read_dimension

#: What a profile may set besides declared parameters: options of the experiment.
EXPERIMENT = {
    "seeds": Parameter("seeds", "integer", 1, "Paired repetitions of every trial.", low=1),
    "trials": Parameter("trials", "integer", 30, "Configurations to try.", low=1),
    "sampler": Parameter("sampler", "text", "ei", "Who proposes configurations."),
    "scheduler": Parameter("scheduler", "text", "asha", "Who stops trials early."),
}
PROFILES = ("small", "paper")

#: The keys at the top of a file.
_TOP = ("method", "title", "source", "search", "vary", "fix", "profiles", "figures", "metric", "one_at_a_time")


def from_document(document: Document, method: str, declared: Mapping[str, Parameter], name: str) -> Space:
    """The space `name` of `method` that a parsed file describes, with the method's `declared` parameters by key.

    Raises `UserError` with every problem of the file."""
    reader = Reader(document, declared)
    items = document.root.items
    _check_top(reader, method)
    search = _search(reader, items.get("search"))
    vary = _varied(reader, items.get("vary"), search)
    if not reader.problems and not search and not vary:
        reader.problems.append(
            f"{document.name} searches nothing. List at least one parameter under `search`, or a condition of the "
            "experiment under `vary`."
        )
    fix = _fixed(reader, items.get("fix"), dict.fromkeys(search, "searched") | dict.fromkeys(vary, "varied"))
    taken = dict.fromkeys(search, "searched") | dict.fromkeys(vary, "varied") | dict.fromkeys(fix, "fixed")
    profiles, select_on_test = _profiles(reader, items.get("profiles"), taken)
    metric = _metric(reader)
    space = Space(
        name,
        method,
        search,
        vary=vary,
        title=reader.text(items, "title"),
        source=reader.text(items, "source"),
        fix=fix,
        profiles=profiles,
        figures=reader.words(items, "figures"),
        metric=metric,
        select_on_test=select_on_test,
        one_at_a_time=_one_at_a_time(reader, items.get("one_at_a_time"), search),
    )
    if reader.problems:
        raise UserError(*reader.problems)
    return space


def _check_top(reader: Reader, method: str) -> None:
    """Complains about keys that do not exist and about a file of another method."""
    document = reader.document
    items = document.root.items
    for key, node in items.items():
        if key not in _TOP:
            reader.problems.append(unknown("key", key, _TOP, document.at_key(node)))
    if "method" not in items:
        reader.problems.append(f"{document.name} does not say its method. Add the line `method: {method}`.")
    elif items["method"].value != method:
        must = f"{method!r}, the method this search is for"
        reader.complain(items["method"], "method", must, items["method"].value)


def _metric(reader: Reader) -> tuple[str, ...]:
    items = reader.document.root.items
    metric = reader.words(items, "metric") or ("val_global_accuracy",)
    for name in metric:
        if name not in METRICS:
            reader.problems.append(unknown("metric", name, METRICS, reader.document.at(items["metric"])))
    return metric


def _one_at_a_time(reader: Reader, node: Node | None, search: Mapping[str, Dimension]) -> bool:
    """The switch of that name; a line through the defaults needs every default to be a point of the space."""
    if node is None or node.value is None:
        return False
    if not isinstance(node.value, bool):
        reader.complain(node, "one_at_a_time", "true or false", node.value)
    for key, dimension in search.items() if node.value is True else ():
        if dimension.children:
            where = reader.document.at(node)
            reader.problems.append(
                f"{key} owns further parameters and cannot be varied one at a time ({where}). "
                "List its options without them."
            )
        elif not dimension.contains(dimension.parameter.default):
            must = f"wide enough to hold its default, {dimension.parameter.default}, with one_at_a_time"
            reader.complain(node, f"search of {key}", must, Shown(dimension.describe()))
    return node.value is True


def _search(reader: Reader, node: Node | None) -> dict[str, Dimension]:
    found: dict[str, Dimension] = {}
    for key, item in reader.keyed(node, "search", reader.declared).items():
        dimension = read_dimension(reader, reader.declared[key], item)
        if dimension is not None:
            found[key] = dimension
    problem = None if node is None else cost.problem(found, reader.document.at_key(node))
    if problem is not None:
        reader.problems.append(problem)
    return found


def _varied(reader: Reader, node: Node | None, search: Mapping[str, Dimension]) -> dict[str, Dimension]:
    found: dict[str, Dimension] = {}
    for key, item in reader.keyed(node, "vary", reader.declared).items():
        if key in search:
            reader.problems.append(f"{key} is both searched and varied ({reader.document.at_key(item)}). Remove one.")
            continue
        dimension = read_condition(reader, reader.declared[key], item)
        if dimension is not None:
            found[key] = dimension
    return found


def _fixed(reader: Reader, node: Node | None, taken: Mapping[str, str]) -> dict[str, Value]:
    """Values by key. `taken` holds the keys that cannot be fixed, each with the word why."""
    found: dict[str, Value] = {}
    for key, item in reader.keyed(node, "fix", reader.declared).items():
        if key in taken:
            where = reader.document.at_key(item)
            reader.problems.append(f"{key} is both {taken[key]} and fixed ({where}). Remove one.")
            continue
        value = reader.convert(reader.declared[key], item)
        if value is not None:
            found[key] = value
    return found


def _profiles(reader: Reader, node: Node | None, taken: Mapping[str, str]) -> tuple[dict[str, dict[str, Value]], bool]:
    """Values by profile and key, and whether the profile `paper` selects on test data.

    `taken` holds the keys that no profile may set, each with the word why: searched, varied or fixed."""
    found: dict[str, dict[str, Value]] = {name: {} for name in PROFILES}
    select_on_test = False
    known = {**reader.declared, **EXPERIMENT}
    for profile, item in reader.mapping(node, "profiles").items():
        if profile not in PROFILES:
            reader.problems.append(unknown("profile", profile, PROFILES, reader.document.at_key(item)))
            continue
        entries = dict(reader.mapping(item, f"profiles.{profile}"))
        select_on_test |= _selects_on_test(reader, entries.pop("select_on_test", None), profile)
        for key, entry in reader.keyed(replace(item, value={}, items=entries), f"profiles.{profile}", known).items():
            if key in taken:
                where = reader.document.at_key(entry)
                reader.problems.append(
                    f"{key} is {taken[key]} and cannot be set by a profile too ({where}). Remove one."
                )
                continue
            value = reader.convert(known[key], entry)
            if value is not None:
                found[profile][key] = value
    return found, select_on_test


def _selects_on_test(reader: Reader, node: Node | None, profile: str) -> bool:
    if node is None:
        return False
    if profile != "paper" or not isinstance(node.value, bool):
        reader.complain(node, "select_on_test", "true or false, in the profile `paper`", node.value)
        return False
    return node.value
