"""A search space written in YAML.

    method: dfrd
    title: EMA generator, α × λ
    source: DFRD, Fig. 5
    search:
      alpha:  {grid: [0.25, 0.5, 0.75, 1.0]}     # numbers: low, high, log, step or grid
      merge_op: {options: [mul, add]}            # choices: options (a mapping where an option owns sub-parameters)
      use_ema: {}                                # as declared
    fix: {base: fedrolex, omega: 0.1}
    profiles:
      small: {rounds: 10}
      paper: {dataset: svhn, rounds: 200, seeds: 3, select_on_test: true}
    figures: [heatmap]
    published: dfrd_fig5
    metric: val_global_accuracy
    one_at_a_time: true                          # a grid search varies one parameter, the others at their defaults

A space narrows what the method declares; it never widens a bound and never invents a parameter. Every problem of a
file is reported, with its line, in one `UserError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from search_spaces.documents import Document, Node
from search_spaces.errors import Shown, UserError, nearest, sentence, unknown
from search_spaces.metrics import METRICS
from search_spaces.parameter import Parameter, Value, canonical
from search_spaces.space import Dimension, Space, on_step, reachable

#: What a profile may set besides declared parameters: options of the experiment.
EXPERIMENT = {
    "seeds": Parameter("seeds", "integer", 1, "Paired repetitions of every trial.", low=1),
    "trials": Parameter("trials", "integer", 30, "Configurations to try.", low=1),
    "sampler": Parameter("sampler", "text", "tpe", "Who proposes configurations."),
    "scheduler": Parameter("scheduler", "text", "asha", "Who stops trials early."),
}
PROFILES = ("small", "paper")

_TOP = ("method", "title", "source", "search", "fix", "profiles", "figures", "published", "metric", "one_at_a_time")
_NUMBER = ("low", "high", "log", "step", "grid")


def from_document(document: Document, method: str, declared: Mapping[str, Parameter]) -> Space:
    """The space that a parsed file describes."""
    reader = _Reader(document, declared)
    space = reader.space(method)
    if reader.problems:
        raise UserError(*reader.problems)
    return space


class _Reader:
    """Reads one document and collects problems instead of stopping at the first."""

    def __init__(self, document: Document, declared: Mapping[str, Parameter]) -> None:
        self.document = document
        self.declared = declared
        self.problems: list[str] = []

    def complain(self, node: Node, what: str, must: str, got: object, fix: str = "") -> None:
        self.problems.append(sentence(what, must, got, self.document.at(node), fix))

    def convert(self, parameter: Parameter, node: Node) -> Value | None:
        """The node's value as one of this parameter; None after a complaint."""
        try:
            return parameter.convert(node.value, self.document.at(node))
        except UserError as error:
            self.problems.extend(error.problems)
            return None

    def mapping(self, node: Node | None, what: str) -> dict[str, Node]:
        """The node's items; empty where the key is absent or stands alone."""
        if node is None or node.value is None:
            return {}
        if not node.is_mapping:
            self.complain(node, what, "a mapping of `name: value`", node.value)
            return {}
        return node.items

    def keyed(self, node: Node | None, what: str, known: Mapping[str, Parameter]) -> dict[str, Node]:
        """The node's items by canonical key; unknown and repeated names are complained about."""
        found: dict[str, Node] = {}
        for written, item in self.mapping(node, what).items():
            key = canonical(written)
            if key not in known:
                self.problems.append(unknown("parameter", written, known, self.document.at_key(item)))
            elif key in found:
                self.problems.append(f"{key} is given twice under {what} ({self.document.at_key(item)}). Remove one.")
            else:
                found[key] = item
        return found

    def text(self, items: Mapping[str, Node], key: str) -> str:
        node = items.get(key)
        if node is None or node.value is None:
            return ""
        if not isinstance(node.value, str):
            self.complain(node, key, "text", node.value)
            return ""
        return node.value

    def words(self, items: Mapping[str, Node], key: str) -> tuple[str, ...]:
        """A list of names, or one name."""
        node = items.get(key)
        if node is None or node.value is None:
            return ()
        nodes = node.elements if node.is_list else (node,)
        for item in nodes:
            if not isinstance(item.value, str):
                self.complain(item, key, "a list of names", item.value)
        return tuple(item.value for item in nodes if isinstance(item.value, str))

    def space(self, method: str) -> Space:
        items = self.document.root.items
        for key, node in items.items():
            if key not in _TOP:
                self.problems.append(unknown("key", key, _TOP, self.document.at_key(node)))
        if "method" not in items:
            self.problems.append(f"{self.document.name} does not say its method. Add the line `method: {method}`.")
        elif items["method"].value != method:
            self.complain(items["method"], "method", f"{method!r}, the method this search is for", items["method"].value)
        search = self.search(items.get("search"))
        fix = self.fixed(items.get("fix"), search)
        profiles, select_on_test = self.profiles(items.get("profiles"), search, fix)
        metric = self.words(items, "metric") or ("val_global_accuracy",)
        for name in metric:
            if name not in METRICS:
                self.problems.append(unknown("metric", name, METRICS, self.document.at(items["metric"])))
        return Space(
            Path(self.document.name).stem, method, search, title=self.text(items, "title"), source=self.text(items, "source"), fix=fix,
            profiles=profiles, figures=self.words(items, "figures"), published=self.text(items, "published") or None, metric=metric,
            select_on_test=select_on_test, one_at_a_time=self.one_at_a_time(items, search),
        )

    def one_at_a_time(self, items: Mapping[str, Node], search: Mapping[str, Dimension]) -> bool:
        """The switch of that name; a line through the defaults needs every default to be a point of the space."""
        node = items.get("one_at_a_time")
        if node is None or node.value is None:
            return False
        if not isinstance(node.value, bool):
            self.complain(node, "one_at_a_time", "true or false", node.value)
            return False
        for key, dimension in search.items() if node.value else ():
            if dimension.children:
                self.problems.append(f"{key} owns further parameters and cannot be varied one at a time ({self.document.at(node)}). "
                                     "List its options without them.")
            elif not dimension.contains(dimension.parameter.default):
                self.complain(node, f"search of {key}", f"wide enough to hold its default, {dimension.parameter.default}, with one_at_a_time",
                              Shown(dimension.describe()))
        return node.value

    def search(self, node: Node | None) -> dict[str, Dimension]:
        found: dict[str, Dimension] = {}
        for key, item in self.keyed(node, "search", self.declared).items():
            dimension = self.dimension(self.declared[key], item)
            if dimension is not None:
                found[key] = dimension
        if not self.problems and not found:
            self.problems.append(f"{self.document.name} searches nothing. List at least one parameter under `search`.")
        return found

    def fixed(self, node: Node | None, search: Mapping[str, Dimension]) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for key, item in self.keyed(node, "fix", self.declared).items():
            if key in search:
                self.problems.append(f"{key} is both searched and fixed ({self.document.at_key(item)}). Remove one.")
                continue
            value = self.convert(self.declared[key], item)
            if value is not None:
                found[key] = value
        return found

    def profiles(
        self, node: Node | None, search: Mapping[str, Dimension], fix: Mapping[str, Value],
    ) -> tuple[dict[str, dict[str, Value]], bool]:
        found: dict[str, dict[str, Value]] = {name: {} for name in PROFILES}
        select_on_test = False
        known = {**self.declared, **EXPERIMENT}
        for profile, item in self.mapping(node, "profiles").items():
            if profile not in PROFILES:
                self.problems.append(unknown("profile", profile, PROFILES, self.document.at_key(item)))
                continue
            entries = dict(self.mapping(item, f"profiles.{profile}"))
            on_test = entries.pop("select_on_test", None)
            if on_test is not None:
                if profile != "paper" or not isinstance(on_test.value, bool):
                    self.complain(on_test, "select_on_test", "true or false, in the profile `paper`", on_test.value)
                else:
                    select_on_test = on_test.value
            for key, entry in self.keyed(replace(item, value={}, items=entries), f"profiles.{profile}", known).items():
                if key in search or key in fix:
                    state = "searched" if key in search else "fixed"
                    self.problems.append(f"{key} is {state} and cannot be set by a profile too ({self.document.at_key(entry)}). Remove one.")
                    continue
                value = self.convert(known[key], entry)
                if value is not None:
                    found[profile][key] = value
        return found, select_on_test

    def dimension(self, parameter: Parameter, node: Node) -> Dimension | None:
        """One entry under `search`."""
        if parameter.kind == "text":
            self.problems.append(f"{parameter.key} is a text and cannot be searched ({self.document.at_key(node)}). Put it under `fix`.")
            return None
        if node.value is not None and not node.is_mapping:
            form = "{options: [...]}" if parameter.kind == "choice" else "{}" if parameter.kind == "flag" else "{low: ..., high: ...} or {grid: [...]}"
            self.complain(node, parameter.key, f"written as {form}", node.value)
            return None
        allowed = {"choice": ("options",), "flag": ()}.get(parameter.kind, _NUMBER)
        before = len(self.problems)
        for key, item in node.items.items():
            if key not in allowed:
                can = f"It takes {', '.join(allowed)}. {nearest(key, allowed)}" if allowed else "It is true or false; write {}."
                self.problems.append(f"Unknown key {key!r} of {parameter.key} ({self.document.at_key(item)}). {can}")
        if parameter.kind == "flag":
            dimension: Dimension | None = Dimension(parameter)
        elif parameter.kind == "choice":
            dimension = self.choice(parameter, node)
        else:
            dimension = self.number(parameter, node)
        return dimension if len(self.problems) == before else None

    def choice(self, parameter: Parameter, node: Node) -> Dimension | None:
        options = node.items.get("options")
        if options is None:
            return Dimension.of(parameter)
        if options.is_mapping:
            entries: list[tuple[Any, Node]] = list(options.items.items())
        elif options.is_list:
            entries = [("none" if item.value is None else item.value, item) for item in options.elements]
        else:
            entries = []
        if not entries:
            self.complain(options, f"options of {parameter.key}", "a list of at least one option", options.value)
        chosen: list[str] = []
        children: dict[str, tuple[Dimension, ...]] = {}
        for written, item in entries:
            option = self.convert(parameter, replace(item, value=written))
            if option is None:
                continue
            if option in chosen:
                self.problems.append(f"{option!r} is listed twice for {parameter.key} ({self.document.at(item)}). Remove one.")
                continue
            chosen.append(str(option))
            if options.is_mapping:
                owned = {child.key: child for child in parameter.children.get(str(option), ())}
                found = [self.dimension(owned[key], entry) for key, entry in self.keyed(item, str(option), owned).items()]
                if found:
                    children[str(option)] = tuple(child for child in found if child is not None)
        return Dimension(parameter, options=tuple(chosen), children=children)

    def number(self, parameter: Parameter, node: Node) -> Dimension | None:
        items = node.items
        try:
            declared = Dimension.of(parameter)
        except ValueError:  # no finite part is declared: the space has to name one
            declared = Dimension(parameter, parameter.low, parameter.high, parameter.log and (parameter.low or 0) > 0, parameter.step)
        ends = {end: self.bound(parameter, items.get(end), end) for end in ("low", "high")}
        grid = self.grid(parameter, items.get("grid")) if "grid" in items else None
        low, high = declared.low, declared.high
        if grid:
            low, high = min(grid), max(grid)
            for end, other in (("low", low), ("high", high)):
                given = ends[end]
                if given is not None and ((given > low) if end == "low" else (given < high)):
                    side = "at most" if end == "low" else "at least"
                    self.complain(items[end], f"{end} of {parameter.key}", f"{side} {other:g}, which its grid holds", given)
        if ends["low"] is not None:
            low = ends["low"]
            high = parameter.high if high is not None and ends["high"] is None and high < low else high  # `tune` ends below it
        if ends["high"] is not None:
            high = ends["high"]
            low = parameter.low if low is not None and ends["low"] is None and low > high else low
        if low is None or high is None:
            if "grid" not in items:
                self.complain(node, parameter.key, "given low and high here, as it is declared without them", node.value)
            return None
        if low > high:
            self.complain(items.get("low") or items["high"], f"low of {parameter.key}", f"at most its high, {high:g}", low)
            return None
        log = self.log(parameter, items, low)
        step = self.step(parameter, items, low, high, log, grid)
        return Dimension(parameter, low, high if "step" in items or grid else reachable(low, high, step), log, step, grid=grid or None)

    def bound(self, parameter: Parameter, node: Node | None, end: str) -> float | int | None:
        if node is None:
            return None
        value = self.convert(replace(parameter, name=f"{end} of {parameter.key}"), node)
        return value if isinstance(value, (int, float)) else None

    def grid(self, parameter: Parameter, node: Node | None) -> tuple[float | int, ...]:
        assert node is not None
        if not node.is_list or not node.elements:
            self.complain(node, f"grid of {parameter.key}", "a list of at least one number", node.value)
            return ()
        values: list[float | int] = []
        for item in node.elements:
            value = self.convert(replace(parameter, name=f"grid of {parameter.key}"), item)
            if isinstance(value, (int, float)):
                if value in values:
                    self.complain(item, f"grid of {parameter.key}", "distinct numbers", Shown(f"{value:g} twice"))
                values.append(value)
        return tuple(values)

    def log(self, parameter: Parameter, items: Mapping[str, Node], low: float) -> bool:
        node = items.get("log")
        if node is None:
            return parameter.log and low > 0 and "step" not in items
        if not isinstance(node.value, bool):
            self.complain(node, f"log of {parameter.key}", "true or false", node.value)
        elif node.value and low <= 0:
            self.complain(node, f"low of {parameter.key}", "above 0 on a log scale", low)
        return node.value is True

    def step(
        self, parameter: Parameter, items: Mapping[str, Node], low: float, high: float, log: bool, grid: tuple[float | int, ...] | None,
    ) -> float | int | None:
        node = items.get("step")
        if node is None:
            return None if log or grid or (parameter.kind == "integer" and parameter.step == 1) else parameter.step
        step = self.convert(Parameter(f"step of {parameter.key}", parameter.kind, 1, "", low=None), node)
        if step is None:
            return None
        assert isinstance(step, (int, float))
        if step <= 0:
            self.complain(node, f"step of {parameter.key}", "above 0", step)
            return None
        if log:
            self.complain(node, f"step of {parameter.key}", "left out on a log scale", step)
            return None
        for value in (high, *(grid or ())):
            if not on_step(low, value, step) or (value == high and reachable(low, high, step) != high):
                self.complain(node, f"step of {parameter.key}", f"a whole part of the way from {low:g} to {value:g}", step)
                return None
        return None if parameter.kind == "integer" and step == 1 else step
