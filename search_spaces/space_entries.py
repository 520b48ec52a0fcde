"""What a space file may say of one parameter: the entries under `search:`, and those under `vary:`.

    search:
      alpha:  {grid: [0.25, 0.5, 0.75, 1.0]}     # narrows the declared parameter
      lr:     {values: [0.01, 0.03, 0.1]}        # these numbers and none between
    vary:
      omega: [10, 1, 0.1]                        # the same as {grid: [10, 1, 0.1]}
      partition: [dir_class, dir_client]         # the same as {options: [dir_class, dir_client]}
      dataset: [digits, my_images.npz]
      use_ema: {}                                # a flag: both

An entry under `vary` is a condition of the experiment, a list of values. Nobody looks for the best one: every
configuration is run under each combination of them. The `Reader` collects problems instead of stopping at the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from search_spaces import cost
from search_spaces.dimension import Dimension, on_step, reachable
from search_spaces.documents import Document, Node
from search_spaces.errors import Shown, UserError, closest, sentence, unknown
from search_spaces.parameter import Parameter, Value, canonical

#: What an entry about a number may say.
NUMBER = ("low", "high", "log", "step", "grid", "values", "cost")

Number = float | int


class Reader:
    """The document, the parameters that may be named in it, and the problems found so far.

    Every method returns what could be read; what could not is left out and told in `problems`, with its line."""

    def __init__(self, document: Document, declared: Mapping[str, Parameter]) -> None:
        self.document = document
        self.declared = declared
        self.problems: list[str] = []

    def complain(self, node: Node, what: str, must: str, got: object) -> None:
        """Notes the standard sentence about the value at `node`."""
        self.problems.append(sentence(what, must, got, self.document.at(node)))

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
        """The text under `key`; empty where there is none."""
        node = items.get(key)
        if node is None or node.value is None:
            return ""
        if not isinstance(node.value, str):
            self.complain(node, key, "text", node.value)
            return ""
        return node.value

    def words(self, items: Mapping[str, Node], key: str) -> tuple[str, ...]:
        """The list of names under `key`, or the one name."""
        node = items.get(key)
        if node is None or node.value is None:
            return ()
        nodes = node.elements if node.is_list else (node,)
        for item in nodes:
            if not isinstance(item.value, str):
                self.complain(item, key, "a list of names", item.value)
        return tuple(item.value for item in nodes if isinstance(item.value, str))


def read_dimension(reader: Reader, parameter: Parameter, node: Node) -> Dimension | None:
    """The dimension that one entry describes; None after a complaint."""
    at = reader.document.at_key
    if parameter.kind == "text":
        reader.problems.append(f"{parameter.key} is a text and cannot be searched ({at(node)}). Put it under `fix`.")
        return None
    if node.value is not None and not node.is_mapping:
        forms = {"choice": "{options: [...]}", "flag": "{}"}
        form = forms.get(parameter.kind, "{low: ..., high: ...}, {values: [...]} or {grid: [...]}")
        reader.complain(node, parameter.key, f"written as {form}", node.value)
        return None
    allowed = {"choice": ("options",), "flag": ()}.get(parameter.kind, NUMBER)
    before = len(reader.problems)
    for key, item in node.items.items():
        if key not in allowed:
            takes = (
                f"It takes {', '.join(allowed)}. {closest(key, allowed)}".rstrip()
                if allowed
                else "It is true or false; write {}."
            )
            reader.problems.append(f"Unknown key {key!r} of {parameter.key} ({at(item)}). {takes}")
    if parameter.kind == "flag":
        dimension: Dimension | None = Dimension(parameter)
    elif parameter.kind == "choice":
        dimension = _choice(reader, parameter, node)
    else:
        dimension = _number(reader, parameter, node)
    return dimension if len(reader.problems) == before else None


def _choice(reader: Reader, parameter: Parameter, node: Node) -> Dimension | None:
    options = node.items.get("options")
    if options is None:
        return Dimension.of(parameter)
    entries = _options(options)
    if not entries:
        reader.complain(options, f"options of {parameter.key}", "a list of at least one option", options.value)
    chosen: list[str] = []
    children: dict[str, tuple[Dimension, ...]] = {}
    for written, item in entries:
        value = reader.convert(parameter, replace(item, value=written))
        if value is None:
            continue
        option = str(value)
        if option in chosen:
            where = reader.document.at(item)
            reader.problems.append(f"{option!r} is listed twice for {parameter.key} ({where}). Remove one.")
            continue
        chosen.append(option)
        if options.is_mapping:
            owned = {child.key: child for child in parameter.children.get(option, ())}
            entered = reader.keyed(item, option, owned)
            found = [read_dimension(reader, owned[key], entry) for key, entry in entered.items()]
            _complain_of_costs(reader, parameter, entered)
            if found:
                children[option] = tuple(child for child in found if child is not None)
    return Dimension(parameter, options=tuple(chosen), children=children)


def _complain_of_costs(reader: Reader, parameter: Parameter, entered: Mapping[str, Node]) -> None:
    """Complains about costs of an option's own parameters: what a round of the other options costs is not said."""
    for key, entry in entered.items():
        if "cost" in entry.items:
            reader.problems.append(
                f"{key} belongs to an option of {parameter.key} and cannot be marked with a cost, as nothing says what "
                f"the other options cost ({reader.document.at_key(entry.items['cost'])}). Leave its cost out."
            )


def _options(node: Node) -> list[tuple[Any, Node]]:
    """The options as they were written, each with the node to name in a complaint."""
    if node.is_mapping:
        return list(node.items.items())
    # YAML reads `null` as None; it names the option `none`.
    return [("none" if item.value is None else item.value, item) for item in node.elements]


def _number(reader: Reader, parameter: Parameter, node: Node) -> Dimension | None:
    items = node.items
    if "values" in items:
        return _values(reader, parameter, items)
    grid = _grid(reader, parameter, items["grid"]) if "grid" in items else None
    low, high = _interval(reader, parameter, items, grid)
    if low is None or high is None:
        if "grid" not in items:
            must = "given low and high here, as it is declared without them"
            reader.complain(node, parameter.key, must, node.value)
        return None
    if low > high:
        entry = items.get("low") or items["high"]
        reader.complain(entry, f"low of {parameter.key}", f"at most its high, {high:g}", low)
        return None
    log = _log(reader, parameter, items, low)
    step = _step(reader, parameter, items, low, high, log, grid)
    top = high if "step" in items or grid else reachable(low, high, step)
    return Dimension(
        parameter, low, top, log, step, grid=grid or None, cost=_cost(reader, parameter, items.get("cost"))
    )


def _values(reader: Reader, parameter: Parameter, items: Mapping[str, Node]) -> Dimension | None:
    """A number that has these values and no other."""
    for key in ("low", "high", "log", "step", "grid"):
        if key in items:
            must = "left out beside values, which are the only ones"
            reader.complain(items[key], f"{key} of {parameter.key}", must, items[key].value)
    found = _grid(reader, parameter, items["values"], "values")
    if not found:
        return None
    low, high = min(found), max(found)
    log = parameter.log and low > 0
    part = _cost(reader, parameter, items.get("cost"))
    return Dimension(parameter, low, high, log, grid=tuple(sorted(found)), only=True, cost=part)


def _interval(
    reader: Reader, parameter: Parameter, items: Mapping[str, Node], grid: tuple[Number, ...] | None
) -> tuple[Number | None, Number | None]:
    """From where to where is searched: what the entry says, what its grid spans, or what a default search covers."""
    try:
        declared = Dimension.of(parameter)
        low, high = declared.low, declared.high
    except ValueError:  # No finite part is declared, so the space has to name one.
        low, high = parameter.low, parameter.high
    given = {end: _bound(reader, parameter, items.get(end), end) for end in ("low", "high")}
    if grid:
        low, high = min(grid), max(grid)
        _check_span(reader, parameter, items, given, low, high)
    if given["low"] is not None:
        low = given["low"]
        # The declared `tune` may end below the given low: then all up to the declared bound is meant.
        high = parameter.high if high is not None and given["high"] is None and high < low else high
    if given["high"] is not None:
        high = given["high"]
        low = parameter.low if low is not None and given["low"] is None and low > high else low
    return low, high


def _check_span(
    reader: Reader,
    parameter: Parameter,
    items: Mapping[str, Node],
    given: Mapping[str, Number | None],
    low: Number,
    high: Number,
) -> None:
    """Complains about a given low or high that leaves out a value of the grid, which spans `low` to `high`."""
    if given["low"] is not None and given["low"] > low:
        must = f"at most {low:g}, which its grid holds"
        reader.complain(items["low"], f"low of {parameter.key}", must, given["low"])
    if given["high"] is not None and given["high"] < high:
        must = f"at least {high:g}, which its grid holds"
        reader.complain(items["high"], f"high of {parameter.key}", must, given["high"])


def _bound(reader: Reader, parameter: Parameter, node: Node | None, end: str) -> Number | None:
    """The given low or high, which must lie within the declared bounds."""
    if node is None:
        return None
    value = reader.convert(replace(parameter, name=f"{end} of {parameter.key}"), node)
    return value if isinstance(value, (int, float)) else None


def _grid(reader: Reader, parameter: Parameter, node: Node, called: str = "grid") -> tuple[Number, ...]:
    """The listed values, which must lie within the declared bounds."""
    what = f"{called} of {parameter.key}"
    if not node.is_list or not node.elements:
        reader.complain(node, what, "a list of at least one number", node.value)
        return ()
    values: list[Number] = []
    for item in node.elements:
        value = reader.convert(replace(parameter, name=what), item)
        if isinstance(value, (int, float)):
            if value in values:
                reader.complain(item, what, "distinct numbers", Shown(f"{value:g} twice"))
            values.append(value)
    return tuple(values)


def _log(reader: Reader, parameter: Parameter, items: Mapping[str, Node], low: Number) -> bool:
    """Whether the scale is logarithmic: as given, else as declared where that is possible."""
    node = items.get("log")
    if node is None:
        return parameter.log and low > 0 and "step" not in items
    if not isinstance(node.value, bool):
        reader.complain(node, f"log of {parameter.key}", "true or false", node.value)
    elif node.value and low <= 0:
        reader.complain(node, f"low of {parameter.key}", "above 0 on a log scale", low)
    return node.value is True


def _step(
    reader: Reader,
    parameter: Parameter,
    items: Mapping[str, Node],
    low: Number,
    high: Number,
    log: bool,
    grid: tuple[Number, ...] | None,
) -> Number | None:
    """The distance between values, which must divide the interval and reach every value of the grid; None: none."""
    node = items.get("step")
    if node is None:
        whole = parameter.kind == "integer" and parameter.step == 1
        return None if log or grid or whole else parameter.step
    what = f"step of {parameter.key}"
    step = reader.convert(Parameter(what, parameter.kind, 1, "", low=None), node)
    if step is None:
        return None
    assert isinstance(step, (int, float))
    if step <= 0:
        reader.complain(node, what, "above 0", step)
        return None
    if log:
        reader.complain(node, what, "left out on a log scale", step)
        return None
    for value in (high, *(grid or ())):
        if not on_step(low, value, step) or (value == high and reachable(low, high, step) != high):
            reader.complain(node, what, f"a whole part of the way from {low:g} to {value:g}", step)
            return None
    return None if parameter.kind == "integer" and step == 1 else step


def _cost(reader: Reader, parameter: Parameter, node: Node | None) -> float | None:
    """The part of a round's cost that is in proportion to the parameter; None: not marked."""
    if node is None:
        return None
    part = node.value
    if isinstance(part, bool) or not isinstance(part, (int, float)) or not 0 < part <= 1:
        reader.complain(node, f"cost of {parameter.key}", cost.MUST, part)
        return None
    return float(part)


def read_condition(reader: Reader, parameter: Parameter, node: Node) -> Dimension | None:
    """The values of one condition, in their order; None after a complaint."""
    if parameter.kind == "flag":
        if node.value not in (None, {}):
            reader.complain(node, f"{parameter.key} under `vary`", "written as {}, for yes and no", node.value)
            return None
        return Dimension(parameter)
    listed = _condition_list(reader, parameter, node)
    values = _condition_values(reader, parameter, listed.elements) if listed is not None else []
    if not values:
        return None
    if parameter.kind in ("real", "integer"):
        numbers = tuple(value for value in values if isinstance(value, (int, float)))
        low, high = min(numbers), max(numbers)
        return Dimension(parameter, low, high, parameter.log and low > 0, grid=numbers)
    return Dimension(parameter, options=tuple(map(str, values)))


def _condition_list(reader: Reader, parameter: Parameter, node: Node) -> Node | None:
    """The node that holds the list; None after a complaint."""
    form = "grid" if parameter.kind in ("real", "integer") else "options"
    if node.is_mapping:
        for key, item in node.items.items():
            if key != form:
                where = reader.document.at_key(item)
                reader.problems.append(
                    f"Unknown key {key!r} of {parameter.key} under `vary` ({where}). A condition is a list of values: "
                    f"{parameter.key}: [...]. {closest(key, (form,))}".rstrip()
                )
        node = node.items.get(form, node)
    if not node.is_list or not node.elements:
        reader.complain(node, f"{parameter.key} under `vary`", "a list of at least one value", node.value)
        return None
    return node


def _condition_values(reader: Reader, parameter: Parameter, elements: Sequence[Node]) -> list[Value]:
    found: list[Value] = []
    for item in elements:
        value = reader.convert(parameter, item)
        if value is None:
            continue
        if value in found:
            where = reader.document.at(item)
            reader.problems.append(f"{value!r} is listed twice for {parameter.key} ({where}). Remove one.")
            continue
        found.append(value)
    return found
