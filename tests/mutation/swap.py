"""How a mutant gets into a process: into the functions that live there, or into the module when it is imported."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from tests.mutation.mutant import Mutant
from tests.mutation.targets import ROOT, files, module_of


def inside(code: CodeType) -> list[CodeType]:
    """The code objects that stand in this one, those inside them left out."""
    return [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def pairs(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """Corresponding code objects of two texts; a function that has others inside than before is the last of its
    branch."""
    found = inside(old), inside(new)
    if [c.co_qualname for c in found[0]] == [c.co_qualname for c in found[1]]:
        for a, b in zip(*found, strict=True):
            yield a, b
            yield from pairs(a, b)


def replacements(path: str, before: str, after: str) -> dict[CodeType, CodeType] | None:
    """New code by old, of functions whose closure is the same; None where the texts have other functions."""
    old, new = (compile(text, path, "exec") for text in (before, after))
    if [c.co_qualname for c in inside(old)] != [c.co_qualname for c in inside(new)]:
        return None
    return {a: b for a, b in pairs(old, new) if a != b and a.co_freevars == b.co_freevars}


#: File, qualified name and first line of a code object.
Place = tuple[str, str, int]


def place(code: CodeType) -> Place:
    """Names a code object of an unchanged file."""
    return code.co_filename, code.co_qualname, code.co_firstlineno


#: Functions by the place of their code.
Living = dict[Place, list[FunctionType]]


def living() -> Living:
    """Every function of the mutated files that lives in this process.

    Also those behind decorators and those that were made by a call, as the garbage collector is asked."""
    paths, found = {str(ROOT / file) for file in files()}, Living()
    for function in gc.get_objects():
        if type(function) is FunctionType and function.__code__.co_filename in paths:
            found.setdefault(place(function.__code__), []).append(function)
    return found


def swap(mutant: Mutant, source: str, functions: Living) -> set[Place]:
    """Gives every living function the mutant's code. What was changed; nothing where that cannot be done or none
    lives."""
    found = replacements(str(ROOT / mutant.file), source, mutant.apply(source))
    wanted: dict[Place, list[CodeType]] = {}
    for old, new in (found or {}).items():
        wanted.setdefault(place(old), []).append(new)
    changed = wanted.keys() & functions.keys()
    if any(len(wanted[where]) > 1 for where in changed):  # two lambdas on one line
        return set()
    for where in changed:
        for function in functions[where]:
            function.__code__ = wanted[where][0]
    return changed


class Early:
    """The places that run while this is open: what they returned may be kept somewhere, where no swap reaches it."""

    def __init__(self) -> None:
        self.paths, self.places = {str(ROOT / file) for file in files()}, set[Place]()

    def _trace(self, frame: FrameType, event: str, argument: Any) -> None:
        if frame.f_code.co_filename in self.paths:
            self.places.add(place(frame.f_code))

    def __enter__(self) -> Early:
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)


class _Loader(SourceFileLoader):
    """Compiles the text it is given instead of the file's."""

    text: str

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.text, self.path, "exec")


class Finder(MetaPathFinder):
    """Imports the mutant's module with the change; everything else as ever."""

    def __init__(self, mutant: Mutant, source: str) -> None:
        self.name, self.path, self.text = module_of(mutant.file), str(ROOT / mutant.file), mutant.apply(source)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /, *_: Any
    ) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        loader = _Loader(fullname, self.path)
        loader.text = self.text
        return spec_from_file_location(fullname, self.path, loader=loader)


def import_changed(mutant: Mutant, source: str) -> None:
    """From now on the module is imported with the change; it must not have been imported yet."""
    assert module_of(mutant.file) not in sys.modules
    sys.meta_path.insert(0, Finder(mutant, source))
