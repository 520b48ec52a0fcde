"""One small wrong step, as a value."""

from __future__ import annotations

import difflib
from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """Bytes `start` to `end` of `file` become `new`.

    function: the qualified name of what it stands in, empty at module level. line: its number, from 1. text: that line
    without indentation. statement: the number of the line on which its statement begins. inside: it is in the body of a
    function, so that the code of a living function can be replaced. nth: counts equal changes of equal lines of a
    function. what, test: where a person wrote the mutant, what is wrong then, and the replay that has to notice it."""

    file: str
    function: str
    line: int
    text: str
    statement: int
    kind: str
    start: int
    end: int
    old: str
    new: str
    inside: bool
    nth: int = 0
    what: str = ""
    test: str = ""

    @property
    def change(self) -> str:
        """`old → new` on one line."""
        return f"{' '.join(self.old.split())} → {' '.join(self.new.split())}"

    @property
    def id(self) -> str:
        """Says the same after other lines have moved it."""
        return " | ".join([self.file, self.function, self.text, self.what or self.kind, f"{self.change} #{self.nth}"])

    def apply(self, source: str) -> str:
        """The file's text with the change."""
        data = source.encode()
        return (data[: self.start] + self.new.encode() + data[self.end :]).decode()

    def diff(self, source: str) -> str:
        """The lines that differ, without context."""
        lines = difflib.unified_diff(source.splitlines(), self.apply(source).splitlines(), n=0, lineterm="")
        return "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))
