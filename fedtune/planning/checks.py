"""Checks of single options. Each adds a sentence to the list of a request's problems, so that the user sees all of
them at the same time."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from fedtune.record.run_directory import exists
from search_spaces.errors import sentence, unknown
from search_spaces.files import cannot_write, given

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d)?")
#: Where runs are made whose name is no path.
RUNS = "runs"
MOST_SECONDS = 3650 * 86400
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, None: 1}


def whole(name: str, value: int | None, low: int, high: int, problems: list[str]) -> None:
    """Adds a problem where `value` is neither None nor a whole number in [low, high]."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high):
        problems.append(sentence(name, f"a whole number in [{low}, {high}]", value, f"--{name}"))


def known(kind: str, word: str | None, words: Iterable[str], problems: list[str], where: str = "") -> None:
    """Adds a problem where `word` is neither None nor one of `words`."""
    if word is not None and word not in words:
        problems.append(unknown(kind, word, words, where))


def seconds_of(time: str | float | None, problems: list[str]) -> float | None:
    """`90`, `90s`, `30m`, `2h`, `1d` in seconds."""
    if time is None:
        return None
    match = _TIME.fullmatch(str(time).strip().lower())
    seconds = 0.0 if match is None else float(match[1]) * _SECONDS[match[2]]
    if not 0 < seconds <= MOST_SECONDS:
        must = f"a length such as 90s, 30m, 2h or 1d, of at most {MOST_SECONDS // 86400} days"
        problems.append(sentence("time", must, time, "--time"))
        return None
    return seconds


def named_folder(name: str, problems: list[str]) -> Path:
    """The folder that `--name` stands for: a name by itself is one in `runs`, and a path is the folder. Adds a problem
    where it exists already or cannot be created."""
    parent, last = os.path.split(name.rstrip("/"))
    folder = given(parent or ("/" if name.startswith("/") else RUNS), "--name").resolve() / last
    if _NAME.fullmatch(last) is None:
        must = "letters, digits, dots, dashes and underscores, starting with a letter or digit, or a path that ends so"
        problems.append(sentence("name", must, name, "--name"))
    elif folder.exists():
        problems.extend(exists(folder).problems)
    else:
        writable(folder.parent, "--name", problems)
    return folder


def writable(folder: Path, flag: str, problems: list[str]) -> None:
    """Adds a problem where `folder` is not there and cannot be made; `flag` is the option that names it."""
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not existing.is_dir():
        problems.append(sentence("The folder of runs", "a directory", str(existing), flag))
    elif not os.access(existing, os.W_OK | os.X_OK):
        problems.extend(cannot_write(folder, "permission denied", f"Choose another place with {flag}.").problems)
