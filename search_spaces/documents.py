"""YAML a user wrote, with the line of every value.

    document = read(Path("space.yaml"))
    document.root.items["fix"].items["rho"].value      # 10
    document.at(node)                                   # "space.yaml, line 7"

Only plain YAML is read: mappings with text keys, lists and scalars. Keys are always the text that was written (a key
`on` is "on", not True). Faults of the text itself (tabs, broken brackets, duplicate keys, anchors, tags) are
`UserError`s that say the line; all that can be found in one pass are reported together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from search_spaces.errors import Shown, UserError, sentence, short


@dataclass(frozen=True)
class Node:
    """One value and its line (from 1); `items` is filled for a mapping, `elements` for a list, neither for a scalar."""

    value: Any
    line: int
    items: dict[str, Node] = field(default_factory=dict)
    elements: tuple[Node, ...] = ()
    #: Line of the key this value belongs to; the value's own line where it has none.
    key_line: int = 0

    @property
    def is_mapping(self) -> bool:
        return isinstance(self.value, dict)

    @property
    def is_list(self) -> bool:
        return isinstance(self.value, list)


@dataclass(frozen=True)
class Document:
    """A parsed file: its name as the user gave it, and the mapping it holds."""

    name: str
    root: Node

    def at(self, node: Node) -> str:
        """Where a value stands: `best.yaml, line 3`."""
        return f"{self.name}, line {node.line}"

    def at_key(self, node: Node) -> str:
        """Where the key of a value stands."""
        return f"{self.name}, line {node.key_line or node.line}"


def read(path: Path | str, what: str = "file") -> Document:
    """The YAML mapping in the file `path`, called a `what` in messages.

    Raises `UserError` when the file cannot be read, is not YAML, is empty or holds something other than a mapping."""
    path = Path(path)
    shown = short(repr(str(path)))
    try:
        if path.exists() and not path.is_file() and not path.is_dir():  # nobody may ever write to it, or for ever
            raise UserError(f"{shown} is a pipe or a device, not a {what}.")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"There is no {what} {shown}.") from None
    except IsADirectoryError:
        raise UserError(f"{shown} is a directory, not a {what}.") from None
    except OSError as error:
        raise UserError(f"The {what} {shown} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise UserError(f"The {what} {shown} is not UTF-8 text (byte {error.start}).") from None
    except ValueError as error:
        raise UserError(f"The {what} {shown} cannot be read: {error}.") from None
    return parse(text, str(path))


def parse(text: str, name: str) -> Document:
    """The YAML mapping in `text`; `name` is what messages call it. Raises the same `UserError`s as `read`."""
    try:
        tree = yaml.compose(text, Loader=PlainLoader)
    except Alias as error:
        raise UserError(
            f"{name}, line {error.line}: YAML aliases (`*{error.anchor}`) are not supported. Write the value out."
        ) from None
    except yaml.MarkedYAMLError as error:
        raise UserError(_malformed(error, name)) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise UserError(f"{name} is not YAML: {str(error).splitlines()[0]}.") from None
    if tree is None or (isinstance(tree, yaml.ScalarNode) and tree.tag.endswith(":null")):
        raise UserError(f"{name} is empty.")
    problems: list[str] = []
    root = _node(tree, name, problems)
    if not problems and not root.is_mapping:
        problems.append(
            sentence(name, "a mapping of `key: value` lines", Shown(_kind(root.value)), f"{name}, line {root.line}")
        )
    if problems:
        raise UserError(*problems)
    return Document(name, root)


class Alias(yaml.YAMLError):
    """With anchors a few lines could stand for billions of values, or contain themselves."""

    def __init__(self, anchor: str, line: int) -> None:
        super().__init__(f"there is an alias (`*{anchor}`) in line {line}")
        self.anchor, self.line = anchor, line


class PlainLoader(yaml.SafeLoader):
    """Raises `Alias` at the first one."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise Alias(event.anchor, event.start_mark.line + 1)
        return super().compose_node(parent, index)


def _malformed(error: yaml.MarkedYAMLError, name: str) -> str:
    mark = error.problem_mark or error.context_mark
    where = f"{name}, line {mark.line + 1}" if mark is not None else name
    problem = error.problem or error.context or "it cannot be parsed"
    if "'\\t'" in problem:
        return f"{where}: there is a tab where YAML wants spaces. Indent with spaces."
    start = error.context_mark
    since = (
        f" (in the part that starts at line {start.line + 1})"
        if start is not None and mark is not None and start.line != mark.line
        else ""
    )
    return f"{where}: not valid YAML, {problem}{since}."


def _node(tree: yaml.Node, name: str, problems: list[str], key_line: int = 0) -> Node:
    line = tree.start_mark.line + 1
    if isinstance(tree, yaml.MappingNode):
        items: dict[str, Node] = {}
        for key, value in tree.value:
            at = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                problems.append(f"{name}, line {at}: a key must be plain text, not a list or a mapping.")
                continue
            if key.value in items:
                problems.append(
                    f"{name}, line {at}: the key {key.value!r} is there twice (first in line "
                    f"{items[key.value].key_line}). Remove one."
                )
                continue
            items[key.value] = _node(value, name, problems, at)
        return Node({key: item.value for key, item in items.items()}, line, items=items, key_line=key_line)
    if isinstance(tree, yaml.SequenceNode):
        elements = tuple(_node(element, name, problems) for element in tree.value)
        return Node([element.value for element in elements], line, elements=elements, key_line=key_line)
    return Node(_scalar(tree, name, problems), line, key_line=key_line)


def _scalar(tree: yaml.Node, name: str, problems: list[str]) -> Any:
    constructor = yaml.constructor.SafeConstructor()
    try:
        return constructor.construct_object(tree)
    except (yaml.YAMLError, ValueError, AttributeError, KeyError):  # PyYAML's own ways of refusing a tag's text
        problems.append(
            f"{name}, line {tree.start_mark.line + 1}: {short(repr(tree.value))} with the tag "
            f"{short(repr(tree.tag))} is not plain YAML."
        )
        return None


def _kind(value: object) -> str:
    if isinstance(value, list):
        return "a list"
    return f"the text {short(repr(value))}" if isinstance(value, str) else short(repr(value))


def walk(node: Node) -> Iterator[Node]:
    """`node` and everything below it."""
    yield node
    for child in (*node.items.values(), *node.elements):
        yield from walk(child)
