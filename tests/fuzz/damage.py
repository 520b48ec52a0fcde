"""Inputs that are damaged run directories: each file truncated, emptied, garbled, of another shape, removed, or
replaced by a folder, a link or a pipe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from search_spaces import run_folder
from tests.fuzz.case import Case, Change
from tests.fuzz.documents import commands, damaged, dumped, dumped_json, mutated

#: Damage after which the file's content is known to be bad, whoever reads it: what is then exported must be the truth.
_PLAIN_TO_SEE = ("torn", "empty", "removed", "folder", "shape")
_SHAPES = (b"[1]\n", b"1\n", b"null\n", b'"x"\n', b"[]\n", b"true\n", b"x\n", b'{"a": [1, {"b": null}]}\n', b"\x00\n")


def files_of(run: Path) -> list[str]:
    """The files of a run directory that a command may read, relative to it."""
    return sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file() and path.name != "log.txt")


@st.composite
def runs(draw: st.DrawFn, scene: Path, real: dict[str, Any]) -> Case:
    """One damaged file, now and then two."""
    run = draw(st.sampled_from(["run", "cut", "final"]))
    changes, ways, names = [], [], []
    for _ in range(draw(st.sampled_from([1, 1, 1, 2]))):
        name = draw(st.sampled_from(files_of(scene / run)))
        change, how = draw(_damage(scene, run, name, real))
        changes.append(change)
        ways.append(how)
        names.append(name)
    words = draw(commands(run))
    # Parameters are recorded several times, so damage that shows cannot change what is exported.
    truth = words[0] == "export" and "--json" in words and "--trial" not in words and run == "run"
    truth = truth and all(how in _PLAIN_TO_SEE for how in ways) and not any("rounds" in name for name in names)
    return Case("damaged runs", words, (run,), tuple(changes), truth=truth)


@st.composite
def _damage(draw: st.DrawFn, scene: Path, run: str, name: str, real: dict[str, Any]) -> tuple[Change, str]:
    path, content = f"{run}/{name}", (scene / run / name).read_bytes()
    ways = ["torn", "torn", "empty", "garbled", "garbled", "shape", "removed", "folder", "link", "pipe", "mutated"]
    how = draw(st.sampled_from(ways))
    if how == "mutated":
        if path in real:
            dump = dumped_json if name.endswith(".json") else dumped
            return Change(path, "write", dump(draw(mutated(real[path])))), how
        if name.endswith(run_folder.ROUNDS):
            return Change(path, "write", _rows(content, draw(st.integers(0, 3)), draw(st.data()))), how
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


def _rows(content: bytes, at: int, data: Any) -> bytes:
    """A trial's rows, one of them mutated."""
    lines = content.splitlines()
    at %= max(1, len(lines))
    lines[at] = dumped_json(data.draw(mutated(json.loads(lines[at]))))
    return b"\n".join(lines) + b"\n"
