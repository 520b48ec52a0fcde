"""The wrong steps that a person wrote for the replays, as mutants: each has to be noticed by its own replay."""

from __future__ import annotations

import re
from pathlib import Path

from tests.mutation.operators import Mutant
from tests.mutation.selection import ROOT
from tests.trainables.methods.replays.mutants import MUTANTS, WrongStep


def pattern(piece: str) -> re.Pattern[str]:
    """The piece however its lines are broken: after an opening bracket, before a closing one, at a space."""
    text = re.escape(piece).replace(r"\ ", r"\s+").replace(r"\(", r"\(\s*").replace(r"\)", r",?\s*\)")
    return re.compile(text)


def found(step: WrongStep) -> Mutant:
    """The mutant, in the only file of its name that has its piece, once."""
    places: list[tuple[Path, re.Match[str]]] = [
        (path, match)
        for path in sorted((ROOT / "trainables").rglob(step.file))
        for match in pattern(step.old).finditer(path.read_text(encoding="utf-8"))
    ]
    assert len(places) == 1, f"{step.old!r} stands {len(places)} times in {step.file}; mend the mutant"
    path, match = places[0]
    before, source = match.string[: match.start()], match.string
    line = before.count("\n") + 1
    return Mutant(
        file=path.relative_to(ROOT).as_posix(),
        function="",
        line=line,
        text=source.splitlines()[line - 1].strip(),
        kind="written",
        start=len(before.encode()),
        end=len(source[: match.end()].encode()),
        old=match.group(),
        new=step.new,
        what=step.what,
        test=step.node,
    )


def written() -> list[Mutant]:
    """All of them."""
    return [found(step) for step in MUTANTS]
