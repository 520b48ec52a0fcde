"""Image files on disk: listing, checking, decoding to uint8 arrays chunk by chunk."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from search_spaces.errors import Shown, UserError, sentence
from trainables.data.dataset import Images

EXTENSIONS = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
_GREY = ("1", "L", "LA")
_COLOUR = ("P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "HSV", "LAB")
_CHUNK = 1000


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


def look(path: Path) -> tuple[tuple[int, int], bool]:
    """((height, width), whether grey) of an image file, from its header."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            mode, (width, height) = image.mode, image.size
    except Exception as error:  # Pillow's plug-ins raise whatever their parsers raise
        raise _unreadable(path, error) from error
    if mode not in _GREY + _COLOUR:
        raise UserError(
            sentence("Images", "8 bits per channel, grey or colour", Shown(f"mode {mode}"), str(path), "Convert it.")
        )
    return (height, width), mode in _GREY


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


def decode_all(paths: Sequence[Path], grey: bool, size: tuple[int, int], title: str) -> Iterator[Images]:
    """Chunks `(k, 1 or 3, H, W)` of all images in order, decoded on all cores, with a counter on stderr for large
    sets."""
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for start in range(0, len(paths), _CHUNK):
            part = paths[start : start + _CHUNK]
            yield np.stack(list(pool.map(lambda path: decode(path, grey, size), part)))
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
