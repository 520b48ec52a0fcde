"""Inputs that are damaged run directories, and damaged folders with several runs: those of `fedtune auto` and of
`fedtune reproduce`. Each file is truncated, emptied, garbled, of another shape, removed, or replaced by a folder, a
link or a pipe; of several runs also whole folders."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from search_spaces import run_folder
from tests.fuzz.case import Case, Change
from tests.fuzz.documents import commands, damaged, dumped, dumped_json, mutated
from tests.fuzz.scene import AUTOS, METHODS, SMALL, TABLE, TABLE_FOLDER, TABLES

#: Damage after which the file's content is known to be bad, whoever reads it: what is then exported must be the truth.
PLAIN_TO_SEE = {"torn", "empty", "removed", "folder", "shape"}
#: What commands print of undamaged folders, by their words: the fields that damage must not change.
Truths = Mapping[tuple[str, ...], Mapping[str, Any]]
_SHAPES = (b"[1]\n", b"1\n", b"null\n", b'"x"\n', b"[]\n", b"true\n", b"x\n", b'{"a": [1, {"b": null}]}\n', b"\x00\n")
_AGAIN = ("reproduce", TABLE, "--small", "--rounds", "2", "--seeds", "1", "--runs-dir")
#: Commands whose answers are known: of which folder they are, and the fields that must be as they are undamaged.
TRUE = {
    ("export", "run", "--json"): ("run", ("parameters",)),
    ("status", "auto", "--json"): ("auto", ("leader", "leaderboard", "state")),
    ("resume", "auto", "--json"): ("auto", ("leader", "leaderboard", "finished", "final")),
    ("export", f"auto/{run_folder.SEARCHES}/{METHODS[0]}", "--json"): ("auto", ("parameters",)),
    (*_AGAIN, "table", "--json"): ("table", ("claims", "verdicts", "numbers", "finished")),
}
#: What these read of rows is not known when rows are damaged; the others compute such rows again.
_READERS = ("status", "export")


def files_of(run: Path) -> list[str]:
    """The files of a run directory that a command may read, relative to it."""
    return sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file() and path.name != "log.txt")


@st.composite
def runs(draw: st.DrawFn, scene: Path, real: dict[str, Any], truths: Truths) -> Case:
    """One damaged file, now and then two."""
    run = draw(st.sampled_from(["run", "cut", "final"]))
    changes, ways, names = [], [], []
    for _ in range(draw(st.sampled_from([1, 1, 1, 2]))):
        name = draw(st.sampled_from([*files_of(scene / run), *[run_folder.STUDY] * 4]))
        change, how = draw(damages(scene, run, name, real))
        changes.append(change)
        ways.append(how)
        names.append(name)
    words = draw(commands(run))
    # Parameters are recorded several times, so damage that shows cannot change what is exported.
    # A study that ends too early is one of a search that has not come further.
    short = ("torn", run_folder.STUDY) in zip(ways, names, strict=True)
    sure = set(ways) <= PLAIN_TO_SEE and not short and not any(run_folder.ROUNDS in name for name in names)
    return Case("damaged runs", words, (run,), tuple(changes), truth=truths.get(words) if sure else None)


@st.composite
def damages(draw: st.DrawFn, scene: Path, run: str, name: str, real: dict[str, Any]) -> tuple[Change, str]:
    """What is done to the file `name` in the folder `run`, and in which way."""
    path, content = f"{run}/{name}", (scene / run / name).read_bytes()
    ways = ["torn", "torn", "empty", "garbled", "garbled", "shape", "removed", "folder", "link", "pipe", "mutated"]
    how = draw(st.sampled_from(ways))
    if how == "mutated":
        if path in real:
            dump = dumped_json if name.endswith(".json") else dumped
            return Change(path, "write", dump(draw(mutated(real[path])))), how
        if name == run_folder.STUDY or name.endswith(run_folder.ROUNDS):
            return Change(path, "write", _lines(content, draw(st.integers(0, 99)), draw(st.data()))), how
        how = "garbled"
    if how in ("torn", "garbled"):
        at = draw(st.integers(0, max(0, len(content) - 1)))
        return Change(path, "write", damaged(content, how, at, draw(st.integers(0, 2**32)))), how
    if how == "shape":
        return Change(path, "write", draw(st.sampled_from(_SHAPES))), how
    if how == "link":
        target = draw(st.sampled_from([b"loop", b"/etc/hostname", b"missing", b"../../best.yaml", b"."]))
        return Change(path, "link", target), how
    return Change(path, {"empty": "write", "removed": "remove"}.get(how, how)), how


def _lines(content: bytes, at: int, data: Any) -> bytes:
    """The lines of a study or the rows of a trial, one of them mutated."""
    lines = content.splitlines()
    at %= max(1, len(lines))
    lines[at] = dumped_json(data.draw(mutated(json.loads(lines[at]))))
    return b"\n".join(lines) + b"\n"


# -- several runs -----------------------------------------------------------------------------------------------------


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
        ("resume", folder, "--json"),
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
        ("export", searches[1], "--table", "out.npz"),
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
