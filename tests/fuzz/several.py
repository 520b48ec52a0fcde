"""Inputs that are damaged folders with several runs: those of `fedtune auto` and of `fedtune reproduce`. Their own
records are damaged, the files of the runs in them, and whole folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from search_spaces import run_folder
from tests.fuzz.case import Case, Change
from tests.fuzz.damage import PLAIN_TO_SEE, Truths, damages, files_of
from tests.fuzz.scene import AUTOS, METHODS, SMALL, TABLE, TABLE_FOLDER, TABLES

_AGAIN = ("reproduce", TABLE, "--small", "--rounds", "2", "--seeds", "1", "--quiet", "--runs-dir")
#: As of `tests.fuzz.campaign.TRUE`.
TRUE = {
    ("status", "auto", "--json"): ("auto", ("leader", "leaderboard", "state")),
    ("resume", "auto", "--quiet", "--json"): ("auto", ("leader", "leaderboard", "finished", "final")),
    ("export", f"auto/{run_folder.SEARCHES}/{METHODS[0]}", "--json"): ("auto", ("parameters",)),
    (*_AGAIN, "table", "--json"): ("table", ("claims", "verdicts", "numbers", "finished")),
}
#: What these read of rows is not known when rows are damaged; the others compute such rows again.
_READERS = ("status", "export")


def autos(scene: Path, real: dict[str, Any], truths: Truths) -> st.SearchStrategy[Case]:
    """A search over several methods."""
    own = [run_folder.AUTO, *(f"{run_folder.BEST}/{name}.yaml" for name in METHODS)]
    parts = st.sampled_from(AUTOS)
    return parts.flatmap(lambda top: _cases("several methods", top, top, own, _of_auto(top), (scene, real, truths)))


def reproductions(scene: Path, real: dict[str, Any], truths: Truths) -> st.SearchStrategy[Case]:
    """A table of a paper."""
    own = [run_folder.REPRODUCTION, run_folder.VERDICTS, run_folder.NUMBERS]

    def of(top: str) -> st.SearchStrategy[Case]:
        folder = f"{top}/{TABLE_FOLDER}"
        cells = sorted(path.name for path in (scene / folder / run_folder.CELLS).iterdir())
        return _cases("reproductions", top, folder, own, _of_table(top, folder, cells), (scene, real, truths))

    return st.sampled_from(TABLES).flatmap(of)


@st.composite
def _cases(
    draw: st.DrawFn,
    area: str,
    top: str,
    folder: str,
    own: Sequence[str],
    commands: Sequence[tuple[str, ...]],
    known: tuple[Path, dict[str, Any], Truths],
) -> Case:
    """One damaged file, now and then two, or a folder that is gone or something else. `own`: the files of the folder
    itself, which are damaged more often."""
    scene, real, truths = known
    every, folders = files_of(scene / folder), _folders(scene / folder)
    changes, ways, names = [], [], []
    for _ in range(draw(st.sampled_from([1, 1, 1, 2]))):
        kind = draw(st.sampled_from(["own", "own", "any", "any", "any", "folder"]))
        if kind == "folder":
            name = draw(st.sampled_from(folders))
            how = draw(st.sampled_from(["remove", "remove", "write", "link", "pipe"]))
            change = Change(f"{folder}/{name}", how, b"loop" if how == "link" else b"x\n" if how == "write" else b"")
        else:
            name = draw(st.sampled_from([one for one in every if kind == "any" or one in own]))
            change, how = draw(damages(scene, folder, name, real))
        changes.append(change)
        ways.append(how)
        names.append(name)
    words = draw(st.sampled_from(commands))
    sure = set(ways) <= PLAIN_TO_SEE and not (words[0] in _READERS and any(run_folder.ROUNDS in one for one in names))
    return Case(area, words, (top,), tuple(changes), truth=truths.get(words) if sure else None)


def _folders(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_dir())


def _of_auto(folder: str) -> list[tuple[str, ...]]:
    """The commands that read the folder, or a run in it."""
    searches = [f"{folder}/{run_folder.SEARCHES}/{name}" for name in METHODS]
    fresh = [f"{folder}/{run_folder.FRESH}/{name}" for name in METHODS]
    best = f"{folder}/{run_folder.BEST}/{METHODS[0]}.yaml"
    return [
        ("status", folder, "--json"),
        ("status", folder),
        ("resume", folder, "--quiet", "--json"),
        ("resume", folder),
        ("report", folder),
        ("report", folder, "--csv", "--latex"),
        ("report", folder, "--anonymous", "-o", "report.html"),
        ("report", *fresh, "-o", "report.html"),
        ("runs", ".", "--json"),
        ("runs", "."),
        ("extend", folder, "--trials", "2"),
        ("extend", searches[0], "--trials", "2"),
        ("resume", searches[0]),
        ("export", folder, "--json"),
        ("export", searches[0], "--json"),
        ("export", searches[1], "--table", "-o", "out.npz"),
        ("compare", *fresh, "--json"),
        ("compare", *searches),
        ("compare", folder, folder),
        ("run", folder),
        ("run", searches[0], "--rounds", "1"),
        ("run", best, "--rounds", "1"),
        ("attack", best, "--images", "1", "--steps", "1"),
        ("search", METHODS[0], "--warm-start", searches[0], "--rounds", "2", "--trials", "3", *SMALL),
    ]


def _of_table(top: str, folder: str, cells: Sequence[str]) -> list[tuple[str, ...]]:
    """The commands that read the folder `folder` in the folder for runs `top`, or a run in it."""
    runs = [f"{folder}/{run_folder.CELLS}/{name}" for name in cells]
    again = (*_AGAIN, top)
    return [
        (*again, "--json"),
        (*again, "--json"),
        again,
        again,
        ("reproduce", TABLE, "--small", "--rounds", "1", "--seeds", "1", "--runs-dir", top),
        ("status", folder, "--json"),
        ("status", runs[0], "--json"),
        ("resume", folder),
        ("resume", runs[0]),
        ("report", folder),
        ("report", *runs, "-o", "report.html"),
        ("runs", top, "--json"),
        ("runs", f"{folder}/{run_folder.CELLS}", "--json"),
        ("extend", runs[0], "--rounds", "1"),
        ("export", runs[0], "--json"),
        ("compare", *runs, "--json"),
        ("compare", folder, folder),
        ("run", folder),
    ]
