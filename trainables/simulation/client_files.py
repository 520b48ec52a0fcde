"""What clients keep from round to round, on disk: files beside the checkpoint that are written once and never changed.

A checkpoint lists these files and what each of them holds that is still needed. What has changed since the last
checkpoint goes into a new file, so that a checkpoint costs what has changed. A file that a checkpoint of round r lists
stays until one of a later round is in its place; a newer file that no checkpoint lists is what a killed process left.
Who puts a checkpoint in its place removes the others afterwards (`trainables.worker.trial_folder`).

A file of which less than half is still needed is given up, and what is needed of it goes into the new one too. So there
is at most twice as much on the disk as clients keep, and at most `MOST` files. What a trial leaves that has ended and
may go on with more rounds is one file, of what clients keep alone.

Where a folder is known (`keep_in`), no more than `IN_MEMORY` bytes of what clients keep are in memory, however many
clients there are: as soon as there are more, they go into a file, are mapped from there, and take memory while they are
used. Until the next checkpoint lists such a file it has a temporary name, and it is removed once nothing of it is
needed. So memory does not hang on when a checkpoint is due. (On a GPU all stay there.)
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from search_spaces import files, leftovers, run_folder
from trainables.simulation import checkpoint
from trainables.worker.process import disk_errors

#: The place of a seed among those of a trial, the field of its `Progress`, the client.
Key = tuple[int, str, int]
#: So many files are listed at most; then all that is needed goes into one.
MOST = 64
#: Bytes of what the clients of a trial keep that may be in memory, beside what a round is working on.
IN_MEMORY = 1 << 28


class _Saved(NamedTuple):
    """Something that a client keeps, as it was saved last."""

    held: object
    #: The file, and how long it is there.
    name: str
    length: int
    #: Whether what is held is mapped from the file.
    is_mapped: bool


class _Unlisted(NamedTuple):
    """A file that no checkpoint lists yet."""

    path: Path
    #: Holds its temporary name (`search_spaces.leftovers`).
    descriptor: int


class ClientFiles:
    """The files of one trial. What is saved is compared by identity: a round replaces what a client keeps, and changes
    nothing in place."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        #: Whether what is too much for the memory goes into the folder.
        self._moves_out = False
        self._saved: dict[Key, _Saved] = {}
        #: Lengths of the files, of what they held at first.
        self._lengths: dict[str, int] = {}
        #: Of these, those that no checkpoint lists.
        self._unlisted: dict[str, _Unlisted] = {}
        #: Bytes in memory that are mapped from no file; more rather than less.
        self._in_memory = 0
        weakref.finalize(self, _remove, self._unlisted)

    def keep_in(self, folder: Path) -> None:
        """From now on what is too much for the memory goes into files in `folder`, where checkpoints are too."""
        self._enter(folder)
        self._moves_out = True

    def _enter(self, folder: Path) -> None:
        if folder != self._folder:
            self._saved, self._lengths = {}, {}
            _remove(self._unlisted)
        self._folder = folder

    def overflow(self, held: Any) -> bool:
        """Whether with `held`, which a client keeps from now on, there may be too much in memory, and `move_out` has
        something to do."""
        tree = checkpoint.to_tree(held)
        self._in_memory += checkpoint.count_bytes(tree)
        return (
            self._moves_out and self._in_memory > IN_MEMORY and checkpoint.can_be_mapped() and checkpoint.on_cpu(tree)
        )

    def move_out(self, now: Mapping[Key, Any]) -> dict[Key, Any]:
        """Where too much of `now` is in memory, all that is there, as trees that are mapped from files; what is in none
        is written. They are to be held in place of what is there. Raises `OSError`."""
        assert self._folder is not None
        saved = self._current(now)
        in_memory = [held for key, held in now.items() if key not in saved or not saved[key].is_mapped]
        self._in_memory = sum(checkpoint.count_bytes(checkpoint.to_tree(held)) for held in in_memory)
        if self._in_memory <= IN_MEMORY:  # what was replaced in the meantime was counted too
            return {}
        if written := {key: checkpoint.to_tree(held) for key, held in now.items() if key not in saved}:
            name = self._next(self._folder)
            descriptor, path = leftovers.new_file(self._folder / name)
            self._unlisted[name] = _Unlisted(path, descriptor)
            with disk_errors(self._folder / name):
                torch.save(written, path)
            saved |= self._lying_in(name, now, written, is_mapped=False)
        found: dict[Key, Any] = {}
        for name in {known.name for known in saved.values() if not known.is_mapped}:
            path = self._unlisted[name].path if name in self._unlisted else self._folder / name
            tree = checkpoint.load(path, mapped=True, known=True)
            found |= {key: tree[key] for key, known in saved.items() if known.name == name and not known.is_mapped}
        self._saved = {key: known._replace(is_mapped=True) for key, known in saved.items()}
        self._in_memory = 0
        needed = {known.name for known in saved.values()}
        for name in [name for name in self._unlisted if name not in needed]:
            _remove({name: self._unlisted.pop(name)})
            del self._lengths[name]
        return {key: found[key] for key in now if key in found}

    def save(
        self, folder: Path, now: Mapping[Key, Any], *, merged: bool = False
    ) -> tuple[dict[str, Any], dict[Key, Any]]:
        """Saves in `folder` what is not there of `now`; `merged`: into one file that holds nothing else, as the trial
        has ended. Returns the list for the checkpoint, and what was written and read back where that spares memory, as
        trees. Raises `OSError`."""
        self._enter(folder)
        kept = self._current(now)
        needed = dict.fromkeys(self._lengths, 0)
        for known in kept.values():
            needed[known.name] += known.length
        lengths = {name: self._lengths[name] for name, length in needed.items() if 2 * length > self._lengths[name]}
        is_one = (
            len(lengths) <= 1
            and len(kept) == len(now)
            and all(of == self._lengths[n] or not of for n, of in needed.items())
        )
        if len(lengths) >= MOST or (merged and not is_one):
            lengths = {}
        saved = {key: known for key, known in kept.items() if known.name in lengths}
        mapped: dict[Key, Any] = {}
        if written := {key: checkpoint.to_tree(held) for key, held in now.items() if key not in saved}:
            name = self._next(folder)
            checkpoint.save(folder / name, written, durable=True)
            is_mapped = not merged and checkpoint.is_mapped(folder / name) and checkpoint.on_cpu(written)
            saved |= self._lying_in(name, now, written, is_mapped=is_mapped)
            lengths[name] = self._lengths[name]
            if merged:
                checkpoint.page_out({key: tree for key, tree in written.items() if key in kept})
            elif is_mapped:
                mapped = checkpoint.load(folder / name, known=True)
                were = (saved[key].length for key in written if key not in kept or not kept[key].is_mapped)
                self._in_memory = max(0, self._in_memory - sum(were))
        self._list(folder, lengths)
        self._saved, self._lengths = saved, lengths
        listed = [(*key, saved[key].name, saved[key].length) for key in now]
        return {"files": lengths, "clients": listed}, mapped

    def _current(self, now: Mapping[Key, Any]) -> dict[Key, _Saved]:
        """What is saved as it is now."""
        return {key: known for key, held in now.items() if (known := self._saved.get(key)) and known.held is held}

    def _lying_in(
        self, name: str, now: Mapping[Key, Any], written: Mapping[Key, Any], *, is_mapped: bool
    ) -> dict[Key, _Saved]:
        """Notes what the file `name` holds."""
        of_each = {key: max(1, checkpoint.count_bytes(tree)) for key, tree in written.items()}
        self._lengths[name] = sum(of_each.values())
        return {key: _Saved(now[key], name, length, is_mapped) for key, length in of_each.items()}

    def _list(self, folder: Path, listed: Mapping[str, int]) -> None:
        """Gives those files their names that a checkpoint is about to list, and removes the others that none has."""
        for name, (path, _) in self._unlisted.items():
            if name in listed:
                files.sync(path)
                os.replace(path, folder / name)
        _remove(self._unlisted)

    def holds(self, now: Mapping[Key, object]) -> None:
        """Says that these, of what `move_out`, `save` or `load` has returned, are held now as a simulation made them of
        it."""
        self._saved |= {key: self._saved[key]._replace(held=held) for key, held in now.items()}

    def load(self, folder: Path, listed: Mapping[str, Any], device: torch.device) -> dict[Key, Any]:
        """What a checkpoint in `folder` lists, as trees in the order in which it was saved. Raises `ValueError` where a
        file is missing or not as it was written."""
        many = self._moves_out and device.type == "cpu" and sum(listed["files"].values()) > IN_MEMORY
        found = read(folder, listed, device, mapped=many)
        self._enter(folder)
        self._lengths = dict(listed["files"])
        are_mapped = {
            name: device.type == "cpu"
            and ((many and checkpoint.can_be_mapped()) or checkpoint.is_mapped(folder / name))
            for name in self._lengths
        }
        self._saved = {
            key: _Saved(None, name, length, are_mapped[name])
            for *place, name, length in listed["clients"]
            if (key := _key(place))
        }
        self._in_memory = sum(known.length for known in self._saved.values() if not known.is_mapped)
        return found

    @property
    def names(self) -> list[str]:
        """The files that the last checkpoint lists."""
        return list(self._lengths)

    def _next(self, folder: Path) -> str:
        """A name that no file has or will have."""
        there = [path.name for path in run_folder.states(folder)]
        return f"{run_folder.STATES}{1 + max(map(run_folder.number_of_states, [*there, *self._unlisted]), default=0)}"


def read(
    folder: Path, listed: Mapping[str, Any], device: torch.device | str = "cpu", *, mapped: bool = False
) -> dict[Key, Any]:
    """What a checkpoint in `folder` lists, as `ClientFiles.load` returns it; `mapped`: as of `checkpoint.load`."""
    if strange := [name for name in listed["files"] if not run_folder.is_states(name)]:
        raise ValueError(f"a trial has no file {strange[0]!r}")
    try:
        found = {name: checkpoint.load(folder / name, device, mapped=mapped) for name in listed["files"]}
        return {key: found[name][key] for *place, name, _ in listed["clients"] if (key := _key(place))}
    except (FileNotFoundError, KeyError) as error:
        raise ValueError(f"what clients keep is missing in {folder}") from error


def _key(place: list[Any]) -> Key:
    seed, field, client = place
    return seed, field, client


def _remove(unlisted: dict[str, _Unlisted]) -> None:
    """Removes files under temporary names, those that still have one, and lets go of the names."""
    while unlisted:
        _, (path, descriptor) = unlisted.popitem()
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        os.close(descriptor)
