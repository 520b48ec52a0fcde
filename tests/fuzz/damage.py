"""Inputs that are damaged run directories: each file truncated, emptied, garbled, of another shape, removed, or
replaced by a folder, a link or a pipe."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from search_spaces import run_folder
from tests.fuzz.case import Case, Change
from tests.fuzz.documents import commands, damaged, dumped, dumped_json, mutated

#: Damage after which the file's content is known to be bad, whoever reads it: what is then exported must be the truth.
PLAIN_TO_SEE = {"torn", "empty", "removed", "folder", "shape"}
#: What commands print of undamaged folders (`tests.fuzz.campaign.Campaign.truths`).
Truths = Mapping[tuple[str, ...], Mapping[str, Any]]
_SHAPES = (b"[1]\n", b"1\n", b"null\n", b'"x"\n', b"[]\n", b"true\n", b"x\n", b'{"a": [1, {"b": null}]}\n', b"\x00\n")


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
