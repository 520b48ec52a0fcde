"""docs/gallery.md and scripts/gallery.py: every picture is made by the command above it, and small enough to keep."""

from __future__ import annotations

import io
import re
import shlex
from pathlib import Path

import gallery
import numpy as np
import pytest
import typer
from PIL import Image

from fedtune.cli import app
from search_spaces import presets
from trainables import registry

PAGE = gallery.PAGE.read_text(encoding="utf-8")
COMMANDS = gallery.commands(PAGE)
#: The part of issue lists and papers that the gallery is to show.
SHOWN = {"factor", "pivot", "box", "images", "averages", "attack", "partition", "boundary", "features"}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.makes or command.picture or command.words[1])
def test_every_command_is_one_that_the_program_takes(command: gallery.Command) -> None:
    group = typer.main.get_command(app)
    sub = group.get_command(None, command.words[0])  # type: ignore[attr-defined]
    taken = sub.make_context(command.words[0], list(command.words[1:])).params
    if command.words[0] in ("search", "run"):
        assert taken.get("space", "default") in presets.names(command.words[1])
        declared = registry.declared(command.words[1])
        assert all(pair.partition("=")[0] in declared for pair in taken["set_"] or ())


def test_every_run_is_made_before_it_is_drawn() -> None:
    made: set[str] = set()
    for command in COMMANDS:
        if command.makes is not None:
            assert command.makes not in made, f"two commands make {command.makes}"
            made.add(command.makes)
        used = {word.removeprefix("runs/") for word in command.words if word.startswith("runs/")}
        assert used <= made, f"{command.line} comes too early"


def test_every_picture_stands_below_its_command() -> None:
    sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
    shown = set()
    for section in sections:
        (drawn,) = (command for command in gallery.commands(section) if command.picture)
        ((words, picture),) = re.findall(r"^!\[([^\]]+)\]\(gallery/([\w.]+)\)$", section, re.MULTILINE)
        assert picture == drawn.picture and words
        shown.add(drawn.words[drawn.words.index("--only") + 1])
    assert shown == SHOWN


def test_pictures_are_there_and_small() -> None:
    drawn = {command.picture for command in COMMANDS if command.picture}
    assert {path.name for path in gallery.PICTURES.iterdir()} == drawn
    assert sum(path.stat().st_size for path in gallery.PICTURES.iterdir()) < gallery.LARGEST
    for path in gallery.PICTURES.iterdir():
        assert Image.open(path).size[0] >= 1000


def test_a_run_is_made_once_resumed_and_made_anew_when_its_command_changes(tmp_path: Path) -> None:
    command = gallery.Command(("run", "fedavg", "--name", "one", "--rounds", "2"))
    folder = tmp_path / "runs" / "one"
    assert gallery.ready(command, tmp_path) == command.words
    folder.mkdir(parents=True)
    (folder / "something").touch()
    assert gallery.ready(command, tmp_path) == ("resume", "runs/one") and (folder / "something").exists()
    changed = gallery.Command(("run", "fedavg", "--name", "one", "--rounds", "3"))
    assert gallery.ready(changed, tmp_path) == changed.words and not folder.exists()
    drawing = gallery.Command(("report", "runs/one", "--only", "images", "-o", "x.png"))
    assert gallery.ready(drawing, tmp_path) == drawing.words


def test_some_pictures_alone_take_the_runs_they_need() -> None:
    lines = [command.line for command in gallery.chosen(COMMANDS, ["images", "attack"])]
    assert sum(line.startswith("fedtune attack") for line in lines) == 6
    assert sum(line.startswith("fedtune run") for line in lines) == 7 and len(lines) == 15
    assert gallery.chosen(COMMANDS, []) == COMMANDS


def test_only_commands_of_fedtune_are_run() -> None:
    assert [command.words for command in gallery.commands("```sh\nfedtune run a \\\n    --name b\n```\n")] == [
        tuple(shlex.split("run a --name b"))
    ]
    with pytest.raises(SystemExit, match="not one of fedtune"):
        gallery.commands("```sh\nrm -rf runs\n```\n")


def test_a_stored_picture_looks_the_same() -> None:
    levels = np.repeat(np.arange(0, 256, 4, dtype=np.uint8)[:, None, None], 8, axis=1).repeat(3, axis=2)
    buffer = io.BytesIO()
    Image.fromarray(levels).save(buffer, format="PNG")
    kept = np.asarray(Image.open(io.BytesIO(gallery.stored(buffer.getvalue()))).convert("RGB"))
    assert np.abs(kept.astype(int) - levels).max() <= 4
