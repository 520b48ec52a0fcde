"""What the project says of itself is so: docs/public-api.md, CONTRIBUTING, CHANGELOG, CITATION, hooks, types."""

from __future__ import annotations

import importlib
import pkgutil
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import fedtune

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("fedtune", "search_spaces", "trainables", "analysis")
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PUBLIC = (ROOT / "docs" / "public-api.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `([\w.]+)(\.\*)?` \| (.+) \|$", re.MULTILINE)
ROWS = [(name, bool(star), re.findall(r"`(\w+)`", text)) for name, star, text in ROW.findall(PUBLIC)]
#: A block of CONTRIBUTING whose first line names the file that it is taken from.
EXCERPT = re.compile(r"^```\w+ ([\w./-]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXCERPTS: list[tuple[str, str]] = EXCERPT.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))


def below(package: str) -> list[str]:
    return [
        info.name
        for info in pkgutil.iter_modules(importlib.import_module(package).__path__)
        if not info.name.startswith("_")
    ]


@pytest.mark.parametrize(("name", "star", "names"), ROWS, ids=[name for name, *_ in ROWS])
def test_every_public_name_imports(name: str, star: bool, names: list[str]) -> None:
    modules = [f"{name}.{module}" for module in below(name)] if star else [name]
    assert modules and (star or names)
    for module in modules:
        found = importlib.import_module(module)
        assert [n for n in names if not hasattr(found, n)] == []


def test_the_table_is_read_whole() -> None:
    table = PUBLIC.split("| module |")[1].split("\n\n")[0]
    assert len(ROWS) == table.count("\n") - 1
    assert {name.partition(".")[0] for name, *_ in ROWS} == set(PACKAGES)


def test_every_function_of_fedtune_is_named() -> None:
    named = next(names for name, _, names in ROWS if name == "fedtune")
    assert sorted(named) == sorted(fedtune.__all__)
    commands = set(below("fedtune.commands")) - {"completion"}  # which is of a shell
    assert sorted([*commands, "load", "load_model"]) == sorted(named)


def closed_up(text: str) -> str:
    """Code without white space and without commas before a closing bracket: however a formatter breaks its lines."""
    return re.sub(r",(?=[)\]}])", "", re.sub(r"\s+", "", text))


@pytest.mark.parametrize(
    ("file", "text"), EXCERPTS, ids=[f"{i}-{file}" for i, (file, _) in enumerate(EXCERPTS, start=1)]
)
def test_an_excerpt_of_contributing_stands_in_its_file(file: str, text: str) -> None:
    assert closed_up(text).rstrip(",") in closed_up((ROOT / file).read_text(encoding="utf-8"))


def test_contributing_shows_an_excerpt_for_each_line_of_taste() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert [int(n) for n in re.findall(r"^\*\*(\d+)\. ", text, re.MULTILINE)] == list(range(1, 11))
    assert len(EXCERPTS) == 10


@pytest.mark.parametrize("document", ["CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_to_files(document: str) -> None:
    found = re.findall(r"\]\((?!https?:|#)([^)#]+)", (ROOT / document).read_text(encoding="utf-8"))
    assert found
    assert [link for link in found if not (ROOT / link).exists()] == []


def test_contributings_make_targets_exist() -> None:
    commands = re.findall(r"^make ([a-z -]+)", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.MULTILINE)
    targets = {target for words in commands for target in words.split()}
    assert {"install", "lint", "test", "docs", "test-slow"} <= targets
    known = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert targets <= set(known)


def test_the_changelog_has_this_version() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ - \d{4}-\d\d-\d\d", heading) for heading in headings[1:])
    assert headings[1].startswith(f"{PROJECT['version']} - ")


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (citation["cff-version"], citation["version"], citation["license"]) == (
        "1.2.0",
        PROJECT["version"],
        PROJECT["license"],
    )
    # What the format's schema requires.
    assert {"authors", "message", "title"} <= set(citation) and citation["authors"]
    assert f"## {citation['version']} - {citation['date-released']}" in (ROOT / "CHANGELOG.md").read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize("package", PACKAGES)
def test_types_are_shipped(package: str) -> None:
    assert (ROOT / package / "py.typed").read_bytes() == b""


def test_every_hook_is_a_tool_of_this_installation() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    hooks = [hook for repository in config["repos"] for hook in repository["hooks"]]
    assert {repository["repo"] for repository in config["repos"]} == {"local"}
    assert {hook["id"] for hook in hooks} >= {"ruff", "mypy", "lint-imports"}
    for hook in hooks:
        tool = Path(shlex.split(hook["entry"])[0])
        assert tool.parent == Path(".venv/bin") and (Path(sys.executable).parent / tool.name).exists(), hook["id"]
    done = subprocess.run(
        [sys.executable, "-m", "pre_commit", "validate-config"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
