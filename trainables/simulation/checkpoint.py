"""A checkpoint is one value: nested frozen dataclasses of tensors, written atomically, read with `weights_only=True`.

`to_tree` turns dataclasses into dictionaries (which the safe loader accepts); `from_tree` rebuilds them from the type
hints of the class that is asked for. Tensors come back bit for bit, with their memory layout.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import mmap
import os
import types
import typing
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from search_spaces.files import open_plain, replacing

#: Bytes from which on a file is mapped: of a shorter one that takes longer than reading, and spares little.
MAPPED = 1 << 26
#: What Linux calls MADV_PAGEOUT (5.4 and newer; Python's mmap does not name it): pages go, and what they hold stays.
_PAGE_OUT = 21


def to_tree(value: Any) -> Any:
    """`value` with every dataclass replaced by a dictionary of its fields."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_tree(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: to_tree(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(to_tree(item) for item in value)
    return value


def from_tree(hint: Any, tree: Any) -> Any:
    """The inverse of `to_tree` for a value of type `hint`."""
    if tree is None or hint is Any or hint is None:
        return tree
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        return hint(**{f.name: from_tree(hints[f.name], tree[f.name]) for f in dataclasses.fields(hint)})  # type: ignore[operator]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return from_tree(next(a for a in arguments if a is not type(None)), tree)
    if origin is dict:
        return {key: from_tree(arguments[1], item) for key, item in tree.items()}
    if origin in (tuple, list):
        each = arguments if origin is tuple and Ellipsis not in arguments else (arguments[0],) * len(tree)
        return origin(from_tree(a, item) for a, item in zip(each, tree, strict=True))
    return tree


def count_bytes(tree: Any) -> int:
    """The bytes of all tensors in `tree`."""
    return sum(tensor.numel() * tensor.element_size() for tensor in _tensors(tree))


def on_cpu(tree: Any) -> bool:
    """Whether all tensors in `tree` are in this machine's own memory."""
    return all(tensor.device.type == "cpu" for tensor in _tensors(tree))


def page_out(tree: Any) -> None:
    """Gives back the memory that tensors mapped from a file take, until they are read again; what they hold stays, also
    where it was changed in place. Does nothing on other systems than Linux."""
    with contextlib.suppress(OSError, AttributeError):
        advise = ctypes.CDLL(None).madvise
        for tensor in _tensors(tree):
            if tensor.device.type == "cpu":
                storage = tensor.untyped_storage()
                begin = -(-storage.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
                length = storage.data_ptr() + storage.nbytes() - begin
                if length > 0:
                    advise(ctypes.c_void_p(begin), ctypes.c_size_t(length), _PAGE_OUT)


def _tensors(tree: Any) -> Iterator[torch.Tensor]:
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, (dict, tuple, list)):
        for item in tree.values() if isinstance(tree, dict) else tree:
            yield from _tensors(item)


def save(path: Path, tree: Any, *, durable: bool = False) -> None:
    """Writes `tree` so that `path` always holds a whole checkpoint, the old one or the new one."""
    with replacing(path, durable=durable) as temporary, open(temporary, "wb") as file:
        torch.save(tree, file)


def can_be_mapped() -> bool:
    """Whether tensors can be mapped from files here."""
    return os.path.exists("/proc/self/fd")


def is_mapped(path: Path) -> bool:
    """Whether `load` maps the tensors of this file that belong on the processor."""
    return path.stat(follow_symlinks=False).st_size >= MAPPED and can_be_mapped()


def load(path: Path, device: torch.device | str = "cpu", *, mapped: bool = False, known: bool = False) -> Any:
    """Reads a checkpoint without running any code in it. Tensors of a long file, `mapped` of any, are mapped (on Linux)
    where they belong on the processor: they take memory once they are used, and a change in place never reaches the
    file. Raises `ValueError`, or an error of zipfile or torch, where the file is not as it was written; `known`: that
    is not looked for, as this process has written the file, or has read it before."""
    with os.fdopen(open_plain(path), "rb") as file:
        if not known:
            with zipfile.ZipFile(file) as archive:  # torch does not look at the checksums that it writes
                if (broken := archive.testzip()) is not None:
                    raise ValueError(f"{broken} in {path} is damaged")
        mapped = mapped or os.fstat(file.fileno()).st_size >= MAPPED
        if torch.device(device).type == "cpu" and mapped and can_be_mapped():
            # (By its descriptor: the name may have come to mean another file.)
            opened = f"/proc/self/fd/{file.fileno()}"
            return torch.load(opened, map_location=device, weights_only=True, mmap=True)
        file.seek(0)
        return torch.load(file, map_location=device, weights_only=True)
