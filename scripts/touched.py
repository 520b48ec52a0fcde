#!/usr/bin/env python3
"""The test files that a change touches, one a line; `make test TOUCHED=1` runs these alone.

    scripts/touched.py [REVISION]      what differs from REVISION, committed or not; default: from upstream, else HEAD

A test file is touched if it changed, if it imports a changed module, directly or through others, or if it is asked
about wrong steps in a changed file (`tests/mutation`), as are tests that reach a method by its name. A module that no
test imports, and a file that is not Python, touch the tests that name them or their folder, and those that import a
module of the file's package that does. Where everything may differ (pyproject.toml, conftest.py) the folder `tests` is
printed. This says what to run first; what is offered has passed `make test`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("fedtune", "trainables", "analysis", "search_spaces", "benchmarks", "tests")
TESTS = ("tests", "benchmarks/tests")
#: A change of one of these may change any test.
EVERYTHING = ("pyproject.toml", "Makefile", "conftest.py", "tests/tiers.py")


def git(*arguments: str) -> list[str]:
    """The lines that git prints; none where it fails."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.split("\n")[:-1] if done.returncode == 0 else []


def changed(revision: str | None) -> list[str]:
    """The files that differ from `revision` or are not known to git."""
    if revision is None:
        upstream = git("merge-base", "HEAD", "@{upstream}")
        revision = upstream[0] if upstream else "HEAD"
    elif not git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"):
        sys.exit(f"TOUCHED must be 1 or a revision that git knows, got {revision!r}.")
    return git("diff", "--name-only", revision) + git("ls-files", "--others", "--exclude-standard")


def module(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def names(file: str) -> tuple[str, str]:
    """How a file that is not Python is spoken of: its name, or its folder's as text of Python."""
    return Path(file).name, f'"{Path(file).parent.name}"'


def naming(file: str) -> list[str]:
    """The modules of its package that name a file that is not Python."""
    top, _, below = file.partition("/")
    modules = (ROOT / top).rglob("*.py") if below and top in PACKAGES else ()
    texts = ((path, path.read_text(encoding="utf-8")) for path in modules)
    return [str(path.relative_to(ROOT)) for path, text in texts if any(name in text for name in names(file))]


def touched(files: list[str]) -> list[str]:
    """The test files that these files touch, or the folder of all."""
    if any(file in EVERYTHING for file in files):
        return ["tests"]
    test_files = {str(path.relative_to(ROOT)) for top in TESTS for path in (ROOT / top).rglob("test_*.py")}
    found = test_files.intersection(files)
    python = [file for file in files if file.endswith(".py") and file.split("/")[0] in PACKAGES]
    others = set(files) - set(python)
    named = [name for file in others for name in names(file)]
    python += [reader for file in others for reader in naming(file)]
    if python:
        graph = grimp.build_graph(*PACKAGES, cache_dir=str(ROOT / ".import_linter_cache"))
        for file in python:
            importing = graph.find_downstream_modules(module(file)) if module(file) in graph.modules else set()
            by = {test for test in test_files if module(test) in importing}
            found |= by
            if not by:  # a command, say, which is imported by its name
                named += [f'"{Path(file).stem}"', module(file)]
        found |= nearest(python) & test_files
    for test in test_files - found:
        text = (ROOT / test).read_text(encoding="utf-8")
        if any(name in text for name in named):
            found.add(test)
    return sorted(found)


def nearest(files: list[str]) -> set[str]:
    """The files of the tests that are asked about wrong steps in one of these files."""
    sys.path.insert(0, str(ROOT))

    from tests.mutation.selection import nearest_tests

    there = [file for file in files if (ROOT / file).is_file()]
    return {test.partition("::")[0] for file in there for test in nearest_tests(file)}


if __name__ == "__main__":
    print("\n".join(touched(changed(sys.argv[1] if len(sys.argv) > 1 else None))))
