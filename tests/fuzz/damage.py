"""Inputs that are damaged run directories: each file truncated, emptied, garbled, of another shape, removed, or
replaced by a folder, a link or a pipe."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from search_spaces import run_folder
from tests.fuzz import hostile
from tests.fuzz.case import Case, Change
from tests.fuzz.documents import commands, damaged, dumped, dumped_json, mutated

#: Damage after which the file's content is known to be bad, whoever reads it: what is then exported must be the truth.
PLAIN_TO_SEE = {"torn", "empty", "removed", "folder", "shape"}
#: What commands print of undamaged folders (`tests.fuzz.campaign.Campaign.truths`).
Truths = Mapping[tuple[str, ...], Mapping[str, Any]]
#: Columns of the study that a search writes, and those that hold JSON.
_COLUMNS = (
    *(("trials", name) for name in ("number", "state", "datetime_start", "datetime_complete")),
    *(("trial_values", name) for name in ("value", "value_type", "objective")),
    *(("trial_intermediate_values", name) for name in ("step", "intermediate_value", "intermediate_value_type")),
    *(("trial_params", name) for name in ("param_name", "param_value")),
    *(("trial_user_attributes", name) for name in ("key", "value_json", "value_json", "value_json")),
    *(("trial_system_attributes", name) for name in ("key", "value_json")),
    ("trial_params", "distribution_json"),
)
_VALUES = (None, -1, 0, 1, 7, 10**12, 2**62, 0.5, -1.5, 9e999, "x", "", "1", b"\x00", "RUNNING", "WAITING", "FAIL")
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
    sure = set(ways) <= PLAIN_TO_SEE and not any(run_folder.ROUNDS in name for name in names)
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
        if name == run_folder.STUDY:
            return Change(path, "write", draw(studies(content))), how
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


@st.composite
def studies(draw: st.DrawFn, content: bytes) -> bytes:
    """A study, still a whole database, with one to three values replaced or removed."""
    with tempfile.NamedTemporaryFile(suffix=".db") as file:
        Path(file.name).write_bytes(content)
        with closing(sqlite3.connect(file.name)) as study, study:
            for _ in range(draw(st.integers(1, 3))):
                table, column = draw(st.sampled_from(_COLUMNS))
                rows = [row for (row,) in study.execute(f"SELECT rowid FROM {table} ORDER BY rowid")]
                if not rows:
                    continue
                row = draw(st.sampled_from(rows))
                if draw(st.integers(0, 7)) == 0:
                    study.execute(f"DELETE FROM {table} WHERE rowid = ?", (row,))
                    continue
                plain = st.sampled_from(hostile.PLAIN).map(json.dumps)
                json_ = st.one_of(
                    plain, plain, st.sampled_from(["1e999", "NaN", "9" * 400, "[" * 200 + "]" * 200, "{"])
                )
                value = draw(json_ if column.endswith("_json") else st.sampled_from(_VALUES))
                # What a constraint of the database refuses, no file can hold.
                study.execute(f"UPDATE OR IGNORE {table} SET {column} = ? WHERE rowid = ?", (value, row))
        return Path(file.name).read_bytes()
