"""Inputs that are hostile YAML files: real ones whose shapes, types and texts were changed."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import yaml
from hypothesis import strategies as st

from search_spaces import run_folder
from tests.fuzz import hostile
from tests.fuzz.case import Case, Change
from tests.fuzz.scene import SMALL

#: What stands for a scalar that only a text can say, until the document is written.
_MARK = "PLACE-OF-A-SCALAR"


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values in a document, its own (empty) first."""
    yield path
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in items:
        yield from places(value, (*path, key))


@st.composite
def mutated(draw: st.DrawFn, document: Any) -> Any:
    """The document with one to three values replaced, removed, wrapped, repeated or renamed."""
    found = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(list(places(found))))
        value = copy.deepcopy(draw(st.sampled_from(hostile.PLAIN)))
        if not path:
            if draw(st.integers(0, 5)) == 0:
                return value
            continue
        parent = found
        for key in path[:-1]:
            parent = parent[key]
        how = draw(st.sampled_from(["replace", "replace", "remove", "wrap", "text", "rename", "repeat"]))
        if how == "replace":
            parent[path[-1]] = value
        elif how == "wrap":
            parent[path[-1]] = draw(st.sampled_from([[parent[path[-1]]], {"x": parent[path[-1]]}]))
        elif how == "text":
            parent[path[-1]] = str(parent[path[-1]])
        elif how == "remove":
            del parent[path[-1]]
        elif isinstance(parent, dict):
            kept = parent[path[-1]]
            if how == "rename":
                del parent[path[-1]]
            parent[draw(st.sampled_from(["x", "", "1", "\x1b", "a" * 300, "round", "key"]))] = kept
        else:
            parent += [copy.deepcopy(parent[path[-1]])] * 3
    return found


@st.composite
def text(draw: st.DrawFn, document: Any) -> bytes:
    """A hostile YAML text: a mutated document, one with a scalar that only YAML can say, or one torn or garbled."""
    how = draw(st.sampled_from(["mutated", "mutated", "scalar", "scalar", "torn", "garbled", "twice", "other"]))
    if how == "other":
        return draw(
            st.sampled_from([b"", b"\n", b"---\n---\n", b"x", b"[1]", b"1", b"\xff\xfe", b"\x00" * 50, b"null"])
        )
    if how == "mutated":
        return dumped(draw(mutated(document)))
    if how == "scalar":
        found = copy.deepcopy(document)
        path = draw(st.sampled_from([p for p in places(found) if p]))
        parent = found
        for key in path[:-1]:
            parent = parent[key]
        parent[path[-1]] = _MARK
        scalar = draw(st.sampled_from(hostile.YAML)).encode("utf-8", "surrogatepass")
        return dumped(found).replace(_MARK.encode(), scalar)
    whole = dumped(document)
    if how == "twice":
        return whole + whole
    return damaged(whole, how, draw(st.integers(0, max(0, len(whole) - 1))), draw(st.integers(0, 2**32)))


def damaged(content: bytes, how: str, at: int, seed: int) -> bytes:
    """`content` torn at a byte, or with bytes replaced from there on."""
    import random

    if how == "torn":
        return content[:at]
    return content[:at] + random.Random(seed).randbytes(12) + content[at + 12 :]


def dumped(document: Any) -> bytes:
    """As YAML."""
    written = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=10_000)
    return str(written).encode("utf-8", "surrogatepass")


def dumped_json(document: Any) -> bytes:
    return json.dumps(document).encode()


@st.composite
def files(draw: st.DrawFn, real: dict[str, Any]) -> Case:
    """A user's own space or exported file, hostile, in the command that reads it."""
    if draw(st.booleans()):
        words = ["search", "fedprox", "--space", "space.yaml", *draw(st.sampled_from([SMALL, ()]))]
        words += draw(st.sampled_from([[], ["--paper"], ["--sampler", "grid"], ["--sampler", "gp"], ["--trials", "2"]]))
        if draw(st.integers(0, 9)) == 0:
            words += ["--dry-run", "--json"]
        change = Change("space.yaml", "write", draw(text(real["space.yaml"])))
    else:
        best = ("run", "best.yaml", *draw(st.sampled_from([(), ("--rounds", "1"), ("--seeds", "1"), SMALL])))
        words = list(draw(st.sampled_from([best, best, ("attack", "best.yaml", "--images", "1", "--steps", "1")])))
        change = Change("best.yaml", "write", draw(text(real["best.yaml"])))
    return Case("YAML files", tuple(words), ("space.yaml", "best.yaml", "data.npz"), (change,))


@st.composite
def experiments(draw: st.DrawFn, real: dict[str, Any]) -> Case:
    """A run directory whose request is hostile, in the commands that read it."""
    run = draw(st.sampled_from(["run", "cut", "final"]))
    change = Change(f"{run}/{run_folder.EXPERIMENT}", "write", draw(text(real[f"{run}/{run_folder.EXPERIMENT}"])))
    return Case("experiment.yaml", draw(commands(run)), (run,), (change,))


def commands(run: str) -> st.SearchStrategy[tuple[str, ...]]:
    """The commands that read a run directory."""
    return st.sampled_from(
        [
            ("status", run, "--json"),
            ("report", run),
            ("report", run, "--csv", "--latex"),
            ("report", run, "--anonymous", "-o", "report.html"),
            ("resume", run),
            ("resume", run, "--json"),
            ("extend", run, "--trials", "2"),
            ("extend", run, "--rounds", "1"),
            ("export", run, "--json"),
            ("export", run, "-o", "out.yaml"),
            ("export", run, "--table", "out.npz"),
            ("export", run, "--trial", "0", "--json"),
            ("compare", run, run, "--json"),
            ("compare", run, run),
            ("attack", run, "--images", "1", "--steps", "1"),
            ("search", "fedprox", "--warm-start", run, "--rounds", "2", "--trials", "3", *SMALL),
            ("run", run),
        ]
    )
