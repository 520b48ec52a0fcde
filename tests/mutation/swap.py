"""How a mutant gets into a process: into the functions that live there, or into the module when it is imported."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from types import CodeType, FunctionType, ModuleType
from typing import Any

from tests.mutation.mutant import Mutant
from tests.mutation.targets import ROOT, files, module_of


def codes(code: CodeType) -> Iterator[CodeType]:
    """A module's code objects, each before those inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


def replacements(path: str, before: str, after: str) -> dict[CodeType, CodeType] | None:
    """New code by old; None where the two texts do not have the same functions with the same closures, or differ
    outside of functions."""
    old, new = (list(codes(compile(text, path, "exec"))) for text in (before, after))
    if [c.co_qualname for c in old] != [c.co_qualname for c in new]:
        return None
    if any(a.co_freevars != b.co_freevars for a, b in zip(old, new, strict=True)):
        return None
    return {a: b for a, b in zip(old[1:], new[1:], strict=True) if a != b or a.co_code != b.co_code}


def place(code: CodeType) -> tuple[str, str, int]:
    """Names a code object of an unchanged file."""
    return code.co_filename, code.co_qualname, code.co_firstlineno


#: Functions by the file, qualified name and first line of their code.
Living = dict[tuple[str, str, int], list[FunctionType]]


def living() -> Living:
    """Every function of the mutated files that lives in this process.

    Also those behind decorators and those that were made by a call, as the garbage collector is asked."""
    paths, found = {str(ROOT / file) for file in files()}, Living()
    for function in gc.get_objects():
        if type(function) is FunctionType and function.__code__.co_filename in paths:
            found.setdefault(place(function.__code__), []).append(function)
    return found


def swap(mutant: Mutant, source: str, functions: Living) -> bool:
    """Gives every living function the mutant's code; False where that cannot be done or none lives."""
    found = replacements(str(ROOT / mutant.file), source, mutant.apply(source))
    if not found:
        return False
    wanted: dict[tuple[str, str, int], list[CodeType]] = {}
    for old, new in found.items():
        wanted.setdefault(place(old), []).append(new)
    if any(len(new) > 1 for new in wanted.values()):  # two lambdas on one line
        return False
    changed = [(function, new[0]) for where, new in wanted.items() for function in functions.get(where, ())]
    for function, code in changed:
        function.__code__ = code
    return bool(changed)


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
