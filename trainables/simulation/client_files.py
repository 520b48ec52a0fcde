"""What clients keep from round to round, on disk: files beside the checkpoint that are written once and never changed.

A checkpoint lists these files and what each of them holds that is still needed. What has changed since the last
checkpoint goes into a new file, so that a checkpoint costs what has changed. A file that a checkpoint of round r lists
stays until one of a later round is in its place; a newer file that no checkpoint lists is what a killed process left.
Who puts a checkpoint in its place removes the others afterwards (`trainables.worker.trial_folder`).

A file of which less than half is still needed is given up, and what is needed of it goes into the new one too. So there
is at most twice as much on the disk as clients keep, and at most `MOST` files. What a trial leaves that has ended and
may go on with more rounds is one file, of what clients keep alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from search_spaces import run_folder
from trainables.simulation import checkpoint

#: The place of a seed among those of a trial, the field of its `Progress`, the client.
Key = tuple[int, str, int]
#: So many files are listed at most; then all that is needed goes into one.
MOST = 64


class ClientFiles:
    """The files of one trial. What is saved is compared by identity: a round replaces what a client keeps, and changes
    nothing in place."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        #: By key what was saved last, in which file, and how long it is.
        self._saved: dict[Key, tuple[object, str, int]] = {}
        #: Lengths of the files, of what they held at first.
        self._lengths: dict[str, int] = {}

    def save(
        self, folder: Path, now: Mapping[Key, Any], *, merged: bool = False
    ) -> tuple[dict[str, Any], dict[Key, Any]]:
        """Saves in `folder` what is not there of `now`; `merged`: into one file that holds nothing else, as the trial
        has ended. Returns the list for the checkpoint, and what was written and read back where that spares memory, as
        trees. Raises `OSError`."""
        if folder != self._folder:
            self._saved, self._lengths = {}, {}
        self._folder = folder
        kept = {key: known for key, held in now.items() if (known := self._saved.get(key)) and known[0] is held}
        needed = dict.fromkeys(self._lengths, 0)
        for _, name, length in kept.values():
            needed[name] += length
        lengths = {name: self._lengths[name] for name, length in needed.items() if 2 * length > self._lengths[name]}
        is_one = len(lengths) <= 1 and len(kept) == len(now) and all(n in lengths for n in needed if needed[n])
        is_one = is_one and sum(needed.values()) == sum(lengths.values())
        if len(lengths) >= MOST or (merged and not is_one):
            lengths = {}
        saved = {key: known for key, known in kept.items() if known[1] in lengths}
        mapped: dict[Key, Any] = {}
        if written := {key: checkpoint.to_tree(held) for key, held in now.items() if key not in saved}:
            name = _next(folder)
            checkpoint.save(folder / name, written, durable=True)
            of_each = {key: max(1, checkpoint.count_bytes(tree)) for key, tree in written.items()}
            lengths[name] = sum(of_each.values())
            saved |= {key: (now[key], name, length) for key, length in of_each.items()}
            if merged:
                checkpoint.page_out({key: tree for key, tree in written.items() if key in kept})
            elif lengths[name] >= checkpoint.MAPPED and checkpoint.on_cpu(written):
                mapped = checkpoint.load(folder / name)
        self._saved, self._lengths = saved, lengths
        listed = [(*key, saved[key][1], saved[key][2]) for key in now]
        return {"files": lengths, "clients": listed}, mapped

    def holds(self, now: Mapping[Key, object]) -> None:
        """Says that these are what was saved, as a simulation now holds it."""
        self._saved = {key: (now[key], *known[1:]) for key, known in self._saved.items()}

    def load(self, folder: Path, listed: Mapping[str, Any], device: torch.device) -> dict[Key, Any]:
        """What a checkpoint in `folder` lists, as trees in the order in which it was saved. Raises `ValueError` where a
        file is missing or not as it was written."""
        found = read(folder, listed, device)
        self._folder, self._lengths = folder, dict(listed["files"])
        self._saved = {key: (None, name, length) for *place, name, length in listed["clients"] if (key := _key(place))}
        return found

    @property
    def names(self) -> list[str]:
        """The files that the last checkpoint lists."""
        return list(self._lengths)


def read(folder: Path, listed: Mapping[str, Any], device: torch.device | str = "cpu") -> dict[Key, Any]:
    """What a checkpoint in `folder` lists, as `ClientFiles.load` returns it."""
    if strange := [name for name in listed["files"] if not run_folder.is_states(name)]:
        raise ValueError(f"a trial has no file {strange[0]!r}")
    try:
        files = {name: checkpoint.load(folder / name, device) for name in listed["files"]}
        return {key: files[name][key] for *place, name, _ in listed["clients"] if (key := _key(place))}
    except (FileNotFoundError, KeyError) as error:
        raise ValueError(f"what clients keep is missing in {folder}") from error


def _key(place: list[Any]) -> Key:
    seed, field, client = place
    return seed, field, client


def _next(folder: Path) -> str:
    """A name that no file has."""
    taken = [run_folder.number_of_states(path.name) for path in run_folder.states(folder)]
    return f"{run_folder.STATES}{1 + max(taken, default=0)}"
