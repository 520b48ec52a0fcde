"""The entries under `vary:` of a space file: conditions of the experiment, each a list of values.

    vary:
      omega: [10, 1, 0.1]                    # the same as {grid: [10, 1, 0.1]}
      partition: [dir_class, dir_client]     # the same as {options: [dir_class, dir_client]}
      dataset: [digits, my_images.npz]
      use_ema: {}                            # a flag: both

Nobody looks for the best value of a condition. Every configuration is run under each combination of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from search_spaces.dimension import Dimension
from search_spaces.documents import Node
from search_spaces.errors import nearest
from search_spaces.parameter import Parameter, Value
from search_spaces.reader import Reader


def read_condition(reader: Reader, parameter: Parameter, node: Node) -> Dimension | None:
    """The values of one condition, in their order; None after a complaint."""
    if parameter.kind == "flag":
        if node.value not in (None, {}):
            reader.complain(node, f"{parameter.key} under `vary`", "written as {}, for yes and no", node.value)
            return None
        return Dimension(parameter)
    listed = _listed(reader, parameter, node)
    values = _values(reader, parameter, listed.elements) if listed is not None else []
    if not values:
        return None
    if parameter.kind in ("real", "integer"):
        numbers = tuple(value for value in values if isinstance(value, (int, float)))
        low, high = min(numbers), max(numbers)
        return Dimension(parameter, low, high, parameter.log and low > 0, grid=numbers)
    return Dimension(parameter, options=tuple(map(str, values)))


def _listed(reader: Reader, parameter: Parameter, node: Node) -> Node | None:
    """The node that holds the list; None after a complaint."""
    form = "grid" if parameter.kind in ("real", "integer") else "options"
    if node.is_mapping:
        for key, item in node.items.items():
            if key != form:
                where = reader.document.at_key(item)
                reader.problems.append(
                    f"Unknown key {key!r} of {parameter.key} under `vary` ({where}). A condition is a list of values: "
                    f"{parameter.key}: [...]. {nearest(key, (form,))}".rstrip()
                )
        node = node.items.get(form, node)
    if not node.is_list or not node.elements:
        reader.complain(node, f"{parameter.key} under `vary`", "a list of at least one value", node.value)
        return None
    return node


def _values(reader: Reader, parameter: Parameter, elements: Sequence[Node]) -> list[Value]:
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
