"""Runs the commands of docs/gallery.md and puts their pictures into docs/gallery (`make gallery`).

Everything happens in .gallery/. A run that is complete is not run again, one that was interrupted is resumed, and one
whose command has changed is made anew; pictures are always drawn. Pictures are stored with 128 colours, which figures
of few colours do not show and which takes a third of the space.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "gallery.md"
PICTURES = ROOT / "docs" / "gallery"
WORK = ROOT / ".gallery"
#: Bytes of all pictures.
LARGEST = 3_000_000
_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Command:
    """One command of the page, its words after `fedtune`."""

    words: tuple[str, ...]

    @property
    def line(self) -> str:
        """As a user would type it."""
        return shlex.join(("fedtune", *self.words))

    @property
    def makes(self) -> str | None:
        """The run, or the folder of a paper's table, that it makes; None for a command that makes none."""
        if self.words[0] == "reproduce":
            small = "small" if "--small" in self.words else None
            return "-".join(filter(None, (self.words[1], small, self._after("--dataset"))))
        return self._after("--name") if self.words[0] in ("run", "search") else None

    @property
    def picture(self) -> str | None:
        """The file that it draws."""
        return self._after("-o")

    @property
    def draws(self) -> set[str]:
        """The runs, and the folders of papers' figures and tables, that it draws of."""
        return {word.split("/")[1] for word in self.words if word.startswith("runs/")}

    def _after(self, option: str) -> str | None:
        return self.words[self.words.index(option) + 1] if option in self.words else None


def commands(page: str) -> list[Command]:
    """The commands of the page's shell blocks, in order."""
    lines = "".join(_BLOCK.findall(page)).replace("\\\n", " ").splitlines()
    found = [shlex.split(line) for line in lines if line.strip()]
    strange = [words for words in found if words[0] != "fedtune"]
    if strange:
        raise SystemExit(f"{PAGE.name} has a command that is not one of fedtune: {shlex.join(strange[0])}")
    return [Command(tuple(words[1:])) for words in found]


def chosen(every: list[Command], only: list[str]) -> list[Command]:
    """Those commands whose pictures are asked for, and those that make the runs these are drawn of; all for none."""
    if not only:
        return every
    drawn = [command for command in every if command.picture in {f"{name}.png" for name in only}]
    runs = {run for command in drawn for run in command.draws}
    return [
        command
        for command in every
        if command in drawn or command.makes in runs or (command.words[0] == "attack" and command.words[1][5:] in runs)
    ]


def ready(command: Command, work: Path) -> tuple[str, ...]:
    """What is to be run for it in `work`: the command, or what resumes the run that it has begun."""
    if command.makes is None:
        return command.words
    folder, begun = work / "runs" / command.makes, work / "begun" / command.makes
    if folder.exists() and begun.exists() and begun.read_text(encoding="utf-8") == command.line:
        # A table of a paper goes on by the command that began it.
        return command.words if command.words[0] == "reproduce" else ("resume", f"runs/{command.makes}")
    if folder.exists():
        shutil.rmtree(folder)
    begun.parent.mkdir(parents=True, exist_ok=True)
    begun.write_text(command.line, encoding="utf-8")
    return command.words


def stored(picture: bytes) -> bytes:
    """A PNG with few colours."""
    from PIL import Image

    buffer = io.BytesIO()
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    image.quantize(128, dither=Image.Dither.NONE).save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("only", nargs="*", help="names of pictures, such as images; without any, all are drawn")
    asked = parser.parse_args()
    (WORK / "runs").mkdir(parents=True, exist_ok=True)
    PICTURES.mkdir(exist_ok=True)
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    for command in chosen(commands(PAGE.read_text(encoding="utf-8")), asked.only):
        words = ready(command, WORK)
        print(shlex.join(("fedtune", *words)), flush=True)
        done = subprocess.run(
            [sys.executable, "-m", "fedtune", *words], cwd=WORK, env=environment, stdout=subprocess.DEVNULL, check=False
        )
        if done.returncode != 0:
            return done.returncode
        if command.picture is not None:
            (PICTURES / command.picture).write_bytes(stored((WORK / command.picture).read_bytes()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
