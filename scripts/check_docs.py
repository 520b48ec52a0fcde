#!/usr/bin/env python3
"""Is what the documents say of the repository so? `make lint` asks; a line for each thing that is not.

Files, links, tests and commands that a document names exist; the pages that are made from data are what the data make;
the tables of names hold every name. What a guide tells a reader to run is run by `tests/packaging/test_docs.py`.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
PACKAGES = ("fedtune", "search_spaces", "trainables", "analysis")
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [*DOCS, *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))]
BLOCK = re.compile(r"^```(\w*)[ ]?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def files() -> Iterator[str]:
    """What documents name and link to: files, folders and tests."""
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    for page in PAGES:
        whole = page.read_text(encoding="utf-8")
        prose, written = BLOCK.sub("", whole), {note for _, note, _ in BLOCK.findall(whole)}
        tops = "|".join((*PACKAGES, "benchmarks", "examples", "tests", "docs", "scripts"))
        for name in re.findall(rf"`((?:{tops})/[\w./-]+)`", prose):
            if name not in written and not (ROOT / name).exists():
                yield f"{page.name} names {name}, which is not there."
        for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", prose):
            if not (page.parent / link).exists():
                yield f"{page.name} links to {link}, which is not there."
        for name in re.findall(r"`(test_\w+)`", prose):
            if f"def {name}(" not in tests:
                yield f"{page.name} names the test {name}, which is not there."


def modules() -> Iterator[str]:
    """Every file says in its first paragraph what it holds, and docs/how-it-fits.md what is in every folder."""
    page = text("docs/how-it-fits.md")
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT)
            first = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n\n")[0].strip()
            if not first.endswith((".", "?", ":")):
                yield f"{name}: the first paragraph must be a docstring of whole sentences, got {first!r}."
            if not (path.parent / "__init__.py").exists():
                yield f"{name.parent} has no __init__.py, so nothing of it is installed."
            if path.name == "__init__.py" and len(name.parts) > 2 and f"`{name.parent}/`" not in page:
                yield f"docs/how-it-fits.md does not say what {name.parent}/ is for."
        if not (ROOT / package / "py.typed").exists():
            yield f"{package} has no py.typed, so its types are not shipped."


def run_folder() -> Iterator[str]:
    """docs/how-it-fits.md shows every file of a run directory."""
    from search_spaces import run_folder as names

    page = text("docs/how-it-fits.md")
    held = (names.EXPERIMENT, names.SPACE, names.PROVENANCE, names.STUDY, names.trial_folder(0))
    of_a_trial = (names.CONFIG, names.PARTITION, names.ROUNDS, names.CHECKPOINT, names.LOG)
    for name in (*held, *of_a_trial):
        if not re.search(rf"^ *{re.escape(name)}/?(\s|$)", page, re.MULTILINE):
            yield f"docs/how-it-fits.md does not show {name} in the run directory."


def public() -> Iterator[str]:
    """docs/public-api.md: every name imports, and those of fedtune are all there."""
    import fedtune

    page = text("docs/public-api.md")
    rows = re.findall(r"^\| `([\w.]+)(\.\*)?` \| (.+) \|$", page, re.MULTILINE)
    if len(rows) != page.split("| module |")[1].split("\n\n")[0].count("\n") - 1:
        yield "docs/public-api.md has a row of another form."
    for name, star, told in rows:
        below = pkgutil.iter_modules(importlib.import_module(name).__path__) if star else []
        for module in [f"{name}.{one.name}" for one in below if not one.name.startswith("_")] or [name]:
            found = importlib.import_module(module)
            for word in re.findall(r"`(\w+)`", told):
                if not hasattr(found, word):
                    yield f"docs/public-api.md names {module}.{word}, which is not there."
        if name == "fedtune" and (other := set(re.findall(r"`(\w+)`", told)) ^ set(fedtune.__all__)):
            yield f"docs/public-api.md must name all of fedtune.__all__ and nothing else; other: {sorted(other)}."


def glossary() -> Iterator[str]:
    """Entries are lines of one form in the order of the alphabet, and every word is used."""
    page = ROOT / "docs" / "glossary.md"
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("-")]
    entries = [re.fullmatch(r"- \*\*([^*]+)\*\*: .+\.", line) for line in lines]
    yield from (
        f"An entry of the glossary must be one line `- **word**: …`: {line}"
        for line, found in zip(lines, entries, strict=True)
        if not found or len(line) > 160
    )
    terms = [found[1] for found in entries if found]
    if terms != sorted(set(terms), key=str.casefold):
        yield "The glossary must be in the order of the alphabet."
    places = [path for place in (*PACKAGES, "docs") for path in (ROOT / place).rglob("*")]
    read = [path for path in (*places, ROOT / "README.md") if path.suffix in (".py", ".md", ".yaml") and path != page]
    used = " ".join(path.read_text(encoding="utf-8") for path in read)
    used = re.sub(r"[\s_]+", " ", used + " " + re.sub(r"(?<=[a-z])(?=[A-Z])", " ", used)).lower()
    for term in terms:
        if not re.search(rf"(?<!\w){re.escape(term.lower().replace('_', ' '))}s?(?!\w)", used):
            yield f"The glossary explains {term!r}, which occurs nowhere else."


def excerpts() -> Iterator[str]:
    """What a document quotes of a file stands there, however a formatter breaks its lines."""

    def closed(code: str) -> str:
        return re.sub(r",(?=[)\]}])", "", re.sub(r"\s+", "", code))

    for page in PAGES:
        for _, file, excerpt in BLOCK.findall(page.read_text(encoding="utf-8")):
            if (ROOT / file).is_file() and closed(excerpt).rstrip(",") not in closed(text(file)):
                yield f"{page.name} quotes {file}, which has other lines: {excerpt.strip()}"
            if page.name == "CONTRIBUTING.md" and file and not (ROOT / file).is_file():
                yield f"CONTRIBUTING.md quotes {file}, which is not there."


def contributing() -> Iterator[str]:
    """Its commands are goals of the Makefile."""
    page = text("CONTRIBUTING.md")
    known = set(re.findall(r"^([a-z-]+):", text("Makefile"), re.MULTILINE))
    for words in re.findall(r"^make ([a-z -]+)", page, re.MULTILINE):
        yield from (f"CONTRIBUTING.md names `make {goal}`, which is not there." for goal in set(words.split()) - known)


def version() -> Iterator[str]:
    """CHANGELOG and CITATION are of the version in pyproject.toml."""
    import yaml

    project = tomllib.loads(text("pyproject.toml"))["project"]
    citation = yaml.safe_load(text("CITATION.cff"))
    headings = re.findall(r"^## (.+)$", text("CHANGELOG.md"), re.MULTILINE)
    if headings[:2] != ["Unreleased", f"{project['version']} - {citation['date-released']}"]:
        yield f"CHANGELOG.md must begin with Unreleased and the version and date of CITATION.cff, got {headings[:2]}."
    if (citation["version"], citation["license"]) != (project["version"], project["license"]):
        yield "CITATION.cff must have the version and licence of pyproject.toml."


def gallery() -> Iterator[str]:
    """Every command of docs/gallery.md is taken by the program, every run is made before it is drawn, and every picture
    is there."""
    import typer
    from gallery import LARGEST, PICTURES, commands

    from fedtune.cli import app
    from search_spaces import presets
    from trainables import registry

    group = typer.main.get_command(app)
    made: set[str] = set()
    drawn = set()
    for command in commands(text("docs/gallery.md")):
        try:
            sub = group.get_command(None, command.words[0])  # type: ignore[attr-defined, arg-type]
            taken = sub.make_context(command.words[0], list(command.words[1:])).params
        except Exception as error:
            yield f"docs/gallery.md has a command that fedtune does not take: {command.line} ({error})."
            continue
        if command.words[0] in ("search", "run"):
            settings = {pair.partition("=")[0] for pair in taken["set"] or ()}
            if taken.get("space", "default") not in presets.names(command.words[1]) or (
                settings - registry.declared(command.words[1]).keys() - {"keep_images"}
            ):
                yield f"docs/gallery.md names a space or setting that is not there: {command.line}."
        if not command.draws <= made or command.makes in made:
            yield f"docs/gallery.md makes a run twice, or draws it before it is made: {command.line}."
        made |= {command.makes} if command.makes else set()
        drawn |= {command.picture} if command.picture else set()
    if drawn != {path.name for path in PICTURES.iterdir()}:
        yield "docs/gallery must hold the pictures that docs/gallery.md draws and no others."
    if sum(path.stat().st_size for path in PICTURES.iterdir()) > LARGEST:
        yield f"The pictures of docs/gallery must have at most {LARGEST} bytes."


def pages() -> Iterator[str]:
    """What is made from data is what the data make, and the tables of names hold all names."""
    import published

    from fedtune.decisions.optuna_samplers import SAMPLERS
    from tests.faults import page as faults

    held = published.read(published.CSV)
    if (published.CSV.read_text(encoding="utf-8"), text("docs/published.md")) != (
        published.text(held),
        published.page(held),
    ):
        yield "docs/published.md or .csv is not what the data make: `python scripts/published.py page` writes both."
    if faults.made(text("docs/faults.md")) != text("docs/faults.md"):
        yield "docs/faults.md differs from the registry: `python -m tests.faults page` writes its tables."
    for name in SAMPLERS:
        if f"\n| `{name}`" not in text("docs/proposals.md"):
            yield f"docs/proposals.md does not name the sampler {name}."


def main() -> int:
    checks = (files, modules, run_folder, public, glossary, excerpts, contributing, version, gallery, pages)
    found = [problem for check in checks for problem in check()]
    print("\n".join(found), end="\n" * bool(found))
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
