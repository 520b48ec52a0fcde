"""Reads the values of one document and collects problems instead of stopping at the first."""

from __future__ import annotations

from collections.abc import Mapping

from search_spaces.documents import Document, Node
from search_spaces.errors import UserError, sentence, unknown
from search_spaces.parameter import Parameter, Value, canonical


class Reader:
    """The document, the parameters that may be named in it, and the problems found so far.

    Every method returns what could be read; what could not is left out and told in `problems`, with its line."""

    def __init__(self, document: Document, declared: Mapping[str, Parameter]) -> None:
        self.document = document
        self.declared = declared
        self.problems: list[str] = []

    def complain(self, node: Node, what: str, must: str, got: object, fix: str = "") -> None:
        """Notes the standard sentence about the value at `node`."""
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
