"""The guides are true: what they tell a reader to write is written, what they tell them to run is run. (Whether files,
links and names in documents are there, `scripts/check_docs.py` asks.)

A code block whose first line is ```lang path is a file, or an excerpt of one that is there, ```sh is run (with `fails`:
must exit with 2), ```text is part of what the last command printed, ```python without a path is run. It all happens in
a copy of the repository.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from fedtune import commands
from fedtune.cli import app

ROOT = Path(__file__).resolve().parents[2]
DOCS = sorted((ROOT / "docs").glob("*.md"))
#: Results and the reasons of defaults come from hours of searching and are not repeated here; scripts/gallery.py runs
#: what the gallery shows; the glossary, the published numbers and settings, and the rules of verdicts and of
#: `fedtune auto` have nothing to run.
GUIDES = [
    path
    for path in DOCS
    if path.stem
    not in (
        "results",
        "defaults",
        "gallery",
        "glossary",
        "published",
        "published-settings",
        "verdicts",
        "how-auto-decides",
    )
]
#: A page with this sentence is followed in the folder in which `start.md` was.
GOES_ON = "This page goes on from [Start](start.md)."
#: Pages that are followed in continuous integration too, and why.
GUARDS = {"add-a-method": "what a user adds", "start": "the first thing that a user does"}
PACKAGES = ("fedtune", "search_spaces", "trainables", "analysis", "benchmarks", "examples", "tests", "docs")
BLOCK = re.compile(r"^```(\w*)[ ]?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    language: str
    note: str
    text: str


def blocks(document: Path) -> list[Block]:
    return [Block(*found) for found in BLOCK.findall(document.read_text(encoding="utf-8"))]


#: Read by every Python process that a document starts, as it stands on their path.
ONE_CORE = "import os\n\nif hasattr(os, 'sched_getaffinity'):\n    os.sched_getaffinity = lambda process: {0}\n"


def on_one_core(folder: Path) -> None:
    """What is started takes the machine for one with a single core, where a search starts one process for its trials:
    each takes seconds to import what it needs, longer than the few rounds in a text. Searches with more are asked for
    in `tests/end_to_end`. They may use every core all the same: bound to one that is busy, Ray would start too late."""
    (folder / "sitecustomize.py").write_text(ONE_CORE, encoding="utf-8")


def follow(document: Path, folder: Path) -> None:
    """Does what the text says in `folder`."""
    tools = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PYTHONPATH": str(folder),
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "200",
        "OMP_NUM_THREADS": "1",
    }
    on_one_core(folder)
    said = ""
    done = 0
    for block in blocks(document):
        if block.language == "text":
            for line in block.text.splitlines():
                assert line in said, f"{line!r} was not printed; this was:\n{said}"
            continue
        if (ROOT / block.note).is_file():
            continue  # `scripts/check_docs.py` compares the excerpt
        if block.note and block.note != "fails":
            target = folder / block.note
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text, encoding="utf-8")
        elif block.language in ("sh", "python"):
            command = (
                ["bash", "-ec", block.text] if block.language == "sh" else [str(tools / "python"), "-c", block.text]
            )
            ran = subprocess.run(
                command, capture_output=True, text=True, check=False, cwd=folder, env=environment, timeout=300
            )
            said = ran.stdout + ran.stderr
            assert ran.returncode == (2 if block.note == "fails" else 0), said
            done += 1
    assert done, f"{document.name} tells the reader to run nothing"


def copied(folder: Path) -> Path:
    """`folder`, with the repository's packages in it."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package)  # compiled files too: all commands would wait for them
    for name in ("pyproject.toml", "conftest.py"):
        shutil.copy(ROOT / name, folder)
    return folder


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return copied(tmp_path)


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the start page was followed: its runs are those that other pages go on from."""
    folder = copied(tmp_path_factory.mktemp("started"))
    follow(ROOT / "docs" / "start.md", folder)
    return folder


@pytest.mark.parametrize(
    "document",
    [pytest.param(path, marks=pytest.mark.guard(GUARDS[path.stem]) if path.stem in GUARDS else ()) for path in GUIDES],
    ids=lambda path: path.stem,
)
def test_following_the_text_works(document: Path, request: pytest.FixtureRequest) -> None:
    goes_on = document.stem == "start" or GOES_ON in " ".join(document.read_text(encoding="utf-8").split())
    folder: Path = request.getfixturevalue("started" if goes_on else "copy")
    if document.stem != "start":  # that page is followed where the folder is made
        follow(document, folder)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("```sh\nfalse\n```\n", "assert 1 == 0"),
        ("```sh\necho one\n```\n\n```text\ntwo\n```\n", "was not printed"),
        ("```sh fails\ntrue\n```\n", "assert 0 == 2"),
        ("no commands\n", "tells the reader to run nothing"),
    ],
)
def test_a_document_that_is_not_true_is_found(tmp_path: Path, text: str, fault: str) -> None:
    document = tmp_path / "wrong.md"
    document.write_text(text)
    with pytest.raises(AssertionError, match=fault):
        follow(document, tmp_path)


@pytest.mark.parametrize("name", [one.name for one in pkgutil.iter_modules(commands.__path__) if one.name[0] != "_"])
def test_the_help_of_a_command_leads_to_a_page_that_shows_it(name: str) -> None:
    guide = importlib.import_module(f"fedtune.commands.{name}").GUIDE
    assert f"fedtune {name}" in (ROOT / "docs" / f"{guide}.md").read_text(encoding="utf-8")
    said = CliRunner().invoke(app, [name, "--help"]).stdout
    assert said.rstrip().endswith(f"Guide: docs/{guide}.md, on the site {guide}.html")


def test_the_list_of_commands_leads_to_the_first_page() -> None:
    said = CliRunner().invoke(app, ["--help"]).stdout
    assert said.rstrip().endswith("Where to begin: docs/start.md, on the site start.html")
