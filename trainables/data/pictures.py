"""Image files on disk: listing, checking, decoding chunk by chunk to uint8 arrays, or to float32 where some have 16
bits."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from search_spaces.errors import Shown, UserError, sentence
from trainables.data.dataset import Images

EXTENSIONS = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
_GREY = ("1", "L", "LA")
_COLOUR = ("P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "HSV", "LAB")
#: 16 bits; Pillow reads some files of this kind as whole numbers of 32 bits.
_DEEP = ("I;16", "I;16B", "I;16L", "I;16N", "I")
#: The largest number of 16 bits.
DEEP = 65535.0
_CHUNK = 1000


class Look(NamedTuple):
    """What an image file's header says: height and width, whether it is grey, and whether it has 16 bits."""

    size: tuple[int, int]
    is_grey: bool
    is_deep: bool


def class_folders(root: Path) -> dict[str, list[Path]]:
    """ImageFolder's layout: every sub-folder is a class, in sorted order, with the image files in and below it."""
    found = {}
    for folder in sorted(p for p in root.iterdir() if p.is_dir() and not p.name.startswith(".")):
        found[folder.name] = sorted(
            Path(where) / name
            for where, _, names in os.walk(folder)
            for name in names
            if name.lower().endswith(EXTENSIONS) and not name.startswith(".") and _is_file(Path(where) / name)
        )
    return found


def _is_file(path: Path) -> bool:
    """Raises `UserError` for a pipe or a device, which would keep a reader waiting."""
    if path.exists() and not path.is_file():
        got = Shown("a folder, a pipe, a socket or a device")
        raise UserError(sentence("Images", "plain files", got, str(path), "Remove it."))
    return True


def look(path: Path) -> Look:
    """An image file's header. Raises `UserError` where it cannot be read, or is of another kind."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            mode, (width, height) = image.mode, image.size
    except Exception as error:  # Pillow's plug-ins raise whatever their parsers raise
        raise _unreadable(path, error) from error
    if mode not in _GREY + _COLOUR + _DEEP:
        must = "8 bits per channel, grey or colour, or grey of 16 bits"
        raise UserError(sentence("Images", must, Shown(f"mode {mode}"), str(path), "Convert it."))
    return Look((height, width), mode in _GREY + _DEEP, mode in _DEEP)


def decode(path: Path, grey: bool, size: tuple[int, int]) -> Images:
    """The image as uint8 `(1 or 3, H, W)`, resized (bilinear, antialiased) where its size differs. Raises
    `UserError`."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            picture: Image.Image = image.convert("L" if grey else "RGB")
        if picture.size != size[::-1]:
            picture = picture.resize(size[::-1], Image.Resampling.BILINEAR)
        array = np.asarray(picture, dtype=np.uint8)
    except Exception as error:
        raise _unreadable(path, error) from error
    return array[None] if grey else array.transpose(2, 0, 1)


def decode_deep(path: Path, size: tuple[int, int]) -> Images:
    """The grey image as float32 `(1, H, W)` in [0, 1] by its format's range, resized (bilinear, antialiased) where its
    size differs. Raises `UserError`."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            highest = DEEP if image.mode in _DEEP else 255.0
            values = np.asarray(image if image.mode in _DEEP else image.convert("L"), dtype=np.float32)
        if values.min() < 0 or values.max() > highest:
            raise ValueError(f"values from {values.min():g} to {values.max():g}, which are no 16 bits")
        if values.shape != size:
            picture = Image.fromarray(values, mode="F").resize(size[::-1], Image.Resampling.BILINEAR)
            values = np.asarray(picture, dtype=np.float32)
    except Exception as error:
        raise _unreadable(path, error) from error
    return (values / np.float32(highest)).astype(np.float32)[None]


def decode_all(
    paths: Sequence[Path], grey: bool, size: tuple[int, int], title: str, *, deep: bool = False
) -> Iterator[Images]:
    """Chunks `(k, 1 or 3, H, W)` of all images in order, decoded on all cores, with a counter on stderr for large
    sets. `deep`: as `decode_deep` does."""
    one = partial(decode_deep, size=size) if deep else partial(decode, grey=grey, size=size)
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for start in range(0, len(paths), _CHUNK):
            part = paths[start : start + _CHUNK]
            yield np.stack(list(pool.map(one, part)))
            if len(paths) > 5 * _CHUNK:
                print(
                    f"{title}: {start + len(part)} of {len(paths)} images read", file=sys.stderr, end="\r", flush=True
                )
        if len(paths) > 5 * _CHUNK:
            print(file=sys.stderr)


def resized(x: Images, side: int) -> Iterator[Images]:
    """Chunks of the images `(n, ch, H, W)` at side×side (bilinear, antialiased)."""
    import torch
    import torch.nn.functional as F

    for start in range(0, len(x), 4096):
        part = torch.from_numpy(np.ascontiguousarray(x[start : start + 4096])).float()
        yield (
            F.interpolate(part, (side, side), mode="bilinear", antialias=True)
            .round_()
            .clamp_(0, 255)
            .to(torch.uint8)
            .numpy()
        )


def _unreadable(path: Path, error: Exception) -> UserError:
    return UserError(
        sentence(
            "Images",
            "complete files in a common format",
            Shown(f"{type(error).__name__}: {error}"),
            str(path),
            "Replace or remove it.",
        )
    )
