"""What came of a fault, read from exit code, messages and files."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from search_spaces import run_folder
from tests import unchanged
from tests.faults.registry import EQUAL, REFUSED
from tests.fedtune.conftest import frozen, timing

#: The files of a folder of several runs that say something, and how those begin that are kept beside rows.
_OWN = (run_folder.AUTO, run_folder.REPRODUCTION, run_folder.VERDICTS, run_folder.NUMBERS, *run_folder.TABLES.values())
_KEPT = ("model-", "clients-", "images-")
#: How a line of progress begins.
PROGRESS = re.compile(r" *\d+\.\d s  ")
#: Exit codes of a command that could not do what it was asked for: the user can mend it, or Ray's servers died.
TOLD = (2, 3)


@dataclass(frozen=True)
class Done:
    """A command that has ended; `code` is None where it had to be ended, as it hung."""

    code: int | None
    out: str
    err: str


def state(folder: Path) -> dict[str, str]:
    """Everything in a folder but the lock, which only names the last process that held it."""
    found = unchanged.state(folder)
    return {name: what for name, what in found.items() if Path(name).name != run_folder.LOCK or what[:3] != "100"}


def record(run: Path) -> list[dict[str, Any]]:
    """All that a run says of its trials, but timings and on how much of the machine they ran."""
    return [
        {**trial, "attributes": {key: value for key, value in trial["attributes"].items() if key != "share"}}
        for trial in frozen(run)
    ]


def told(done: Done) -> str | None:
    """None where a command ended with one sentence; else what it did instead."""
    # Ray's own log may be what the disk refuses, and Ray's C++ then says so on stderr, past all that Python can catch.
    # And on a busy machine a command may have told of its progress before it came to the fault.
    lines = [
        line
        for line in done.err.rstrip().splitlines()
        if "[ray_log_sink] Failed" not in line and not PROGRESS.match(line)
    ]
    if done.code is None:
        return "hung"
    if "Traceback" in done.err:
        return f"traceback, {lines[-1]}"
    if done.code not in TOLD:
        return f"exit code {done.code}, {lines[-1] if lines else 'no message'}"
    # A file with several faults, a sentence for each.
    if not lines or not all(line.endswith(".") for line in lines):
        return f"no sentence: {done.err.strip()!r}"
    return None


def refused(done: Done, folder: Path, before: dict[str, str]) -> str:
    """`REFUSED` where a command ended with one sentence and left `folder` as it was, but for what a killed driver had
    left there: the next command removes that before anything else."""
    if (other := told(done)) is not None:
        return other
    after = state(folder)
    changed = sorted(
        name
        for name in before.keys() | after.keys()
        if before.get(name) != after.get(name) and not (name.startswith(".session-") and name not in after)
    )
    return REFUSED if not changed else f"refused, but changed {', '.join(changed)}"


def equal(done: Done, run: Path, whole: list[dict[str, Any]]) -> str:
    """`EQUAL` where a command ended well and the record of `run` is `whole`, with nothing beside it."""
    if (other := _ended(done, run)) is not None:
        return other
    try:
        found = record(run)
    except (OSError, ValueError) as error:
        return f"no record: {error}"
    if found == whole:
        return EQUAL
    others = [str(a["number"]) for a, b in zip(found, whole, strict=False) if a != b]
    return f"{len(found)} of {len(whole)} trials; another trial {', '.join(others)}"


def _ended(done: Done, folder: Path) -> str | None:
    """None where a command ended well and left nothing behind in `folder`; else what it did instead."""
    if done.code is None:
        return "hung"
    if done.code != 0 or "Traceback" in done.err:
        return told(done) or f"refused: {done.err.strip()}"
    left = sorted(str(path.relative_to(folder)) for path in folder.rglob(".*"))
    return f"left behind {', '.join(left)}" if left else None


def said(folder: Path) -> dict[str, Any]:
    """All that a folder says: the records of the runs in it, by their folders, and by their paths the files that are
    its own or are kept beside rows, but for timings."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.name == run_folder.EXPERIMENT:
            found[str(path.parent.relative_to(folder))] = record(path.parent)
        elif path.name in _OWN or path.parent.name == run_folder.BEST or path.name.startswith(_KEPT):
            found[name] = _untimed(path) if path.suffix == ".json" else path.read_bytes()
    return found


def _untimed(card: Path) -> Any:
    """What the card of a saved model says, but for timings."""

    def untimed(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: untimed(item) for key, item in value.items() if not timing(key)}
        return value

    return untimed(json.loads(card.read_text()))


def same(done: Done, folder: Path, whole: dict[str, Any], *, but: Path | None = None) -> str:
    """`EQUAL` where a command ended well and `folder` says what it did when it was whole, `but` for one file in it."""
    if (ended := _ended(done, folder)) is not None:
        return ended
    try:
        found = said(folder)
    except (OSError, ValueError) as error:
        return f"no record: {error}"
    left_out = set() if but is None else {str(but.relative_to(folder))}
    names = found.keys() | whole.keys()
    other = sorted(name for name in names - left_out if found.get(name) != whole.get(name))
    return f"another {', '.join(other)}" if other else EQUAL


def either(done: Done, run: Path, before: dict[str, str], whole: list[dict[str, Any]]) -> str:
    """Whichever of the two it was."""
    return equal(done, run, whole) if done.code == 0 else refused(done, run, before)
