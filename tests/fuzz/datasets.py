"""Inputs that are data sets of a user's own: .npz files and folders of images that are not as they should be."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.fuzz import hostile
from tests.fuzz.case import Case, Change
from tests.fuzz.documents import damaged
from tests.fuzz.scene import SMALL, npz

_DTYPES = [
    "u1",
    "i1",
    "u2",
    "i8",
    "u8",
    "f2",
    "f4",
    "f8",
    "f16",
    "c8",
    "?",
    "S3",
    "U2",
    "M8[s]",
    "m8[s]",
    "O",
    "V4",
    "i4,f8",
]
_LABELS = (0, 1, 2, -1, 7, 255, 10**9, 1e30, -1e30, 9.3e18, 1e-320, 0.5, float("nan"), float("inf"), 2**63 - 1)
_SHAPES = (
    (60, 8, 8),
    (60, 8, 8, 3),
    (60, 3, 8, 8),
    (60, 1, 8, 8),
    (60, 8, 8, 2),
    (60, 1, 1),
    (60, 0, 8),
    (0, 8, 8),
    (1, 8, 8),
    (60,),
    (),
    (60, 64),
    (60, 8, 8, 3, 1),
    (60, 200, 3),
    (3, 60, 8, 8),
)


def _plain(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, array, allow_pickle=True)
    return out.getvalue()


def _claim(dtype: str, shape: tuple[int, ...], fortran: bool, body: bytes) -> bytes:
    """An array whose heading says more, or something else, than it holds."""
    out = io.BytesIO()
    out.write(b"\x93NUMPY\x01\x00")
    text = f"{{'descr': {dtype!r}, 'fortran_order': {fortran}, 'shape': {shape}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    out.write(len(text).to_bytes(2, "little") + text + body)
    return out.getvalue()


@st.composite
def _images(draw: st.DrawFn) -> bytes:
    if draw(st.booleans()):
        return _plain((np.arange(60 * 64) % 256).astype("u1").reshape(60, 8, 8))
    shape = draw(st.sampled_from(_SHAPES))
    if draw(st.integers(0, 5)) == 0:
        claimed = draw(
            st.sampled_from([(10**60, 8, 8), (60, 2**62, 4), (-1, 8, 8), (60, 8), (2**31, 1, 1), (60, 8, 8)])
        )
        kind = draw(st.sampled_from(["|u1", "<f8", "|O", "x", "<U9999999"]))
        return _claim(kind, claimed, draw(st.booleans()), b"\0" * 800)
    value = draw(st.sampled_from([0, 1, 255, 256, -1, 0.5, 1e30, float("nan"), float("inf"), 1e-320]))
    with np.errstate(all="ignore"):
        return _plain(_cast(np.resize(np.array([0, 1, value], dtype=object), shape), draw(st.sampled_from(_DTYPES))))


@st.composite
def _answers(draw: st.DrawFn) -> bytes:
    if draw(st.integers(0, 2)):
        return _plain(np.resize(np.array([0, draw(st.sampled_from(_LABELS))], dtype=np.float64), (60,)))
    many = draw(st.sampled_from([60, 60, 60, 60, 0, 1, 59, 61]))
    shape = draw(st.sampled_from([(many,), (many,), (many, 1), (many, 3), (), (1, many)]))
    values = np.array(draw(st.lists(st.sampled_from(_LABELS), min_size=2, max_size=4)), dtype=object)
    kind = draw(st.sampled_from(["f8", "f8", "i8", *_DTYPES]))
    with np.errstate(all="ignore"):
        return _plain(_cast(np.resize(values, shape), kind))


def _cast(values: np.ndarray, kind: str) -> np.ndarray:
    try:
        return values.astype(np.float64).astype(kind)
    except (TypeError, ValueError, OverflowError):
        return np.zeros(values.shape, dtype=kind)


@st.composite
def archives(draw: st.DrawFn) -> Case:
    """An .npz file."""
    names = draw(
        st.sampled_from([("x", "y")] * 4 + [("x_train", "y_train", "x_test", "y_test"), ("x",), ("a", "b"), ()])
    )
    members = {f"{name}.npy": draw(_answers() if name.startswith("y") else _images()) for name in names}
    if draw(st.integers(0, 9)) == 0:
        members |= {draw(st.sampled_from(["x", "../x.npy", "x.npy/", "é.npy", "\x1b.npy"])): b"text"}
    content = npz(members)
    how = draw(st.sampled_from(["whole"] * 6 + ["torn", "garbled"]))
    if how != "whole":
        content = damaged(content, how, draw(st.integers(0, len(content) - 1)), draw(st.integers(0, 2**32)))
    return _case(draw, "data.npz", (Change("data.npz", "write", content),))


@st.composite
def _picture(draw: st.DrawFn) -> bytes:
    from PIL import Image

    mode = draw(st.sampled_from([*["L"] * 20, "RGB", "RGBA", "P", "1", "I", "F", "I;16", "CMYK", "LA"]))
    size = draw(st.sampled_from([(8, 8)] * 20 + [(1, 1), (9, 8), (400, 2)]))
    kind = draw(st.sampled_from([*["PNG"] * 60, "TIFF", "JPEG", "BMP", "PPM", "WEBP", "GIF"]))
    out = io.BytesIO()
    try:
        Image.new(mode, size, draw(st.sampled_from([0, 1]))).save(out, kind)
    except (OSError, TypeError, ValueError, KeyError):
        return b"no picture"
    content = out.getvalue()
    how = draw(st.sampled_from(["whole"] * 30 + ["torn", "garbled", "claim"]))
    if how == "whole":
        return content
    if how == "claim":  # a PNG's width and height
        return (
            content[:16] + draw(st.sampled_from([b"\x7f\xff\xff\xff", b"\0\0\xff\xff", b"\0\0\0\0"])) * 2 + content[24:]
        )
    return damaged(content, how, draw(st.integers(0, len(content) - 1)), draw(st.integers(0, 2**32)))


@st.composite
def pictures(draw: st.DrawFn) -> Case:
    """A folder of images."""
    odd = st.sampled_from(["", "train", "test", "train/a", "\x1b[2J", "a" * 250, ".hidden", "é", "=1", "\udcff"])
    classes = draw(st.sampled_from([("a", "b"), ("a", "b"), ("train/a", "train/b", "test/a"), ("a",), ()]))
    changes = [
        Change(f"photos/{place}/{number}.png", "write", draw(_picture()))
        for place in classes
        for number in range(draw(st.integers(2, 5)))
    ]
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        place = f"photos/{draw(odd)}/x.png"
        do = draw(st.sampled_from(["write", "folder", "pipe", "link"]))
        content = draw(_picture()) if do == "write" else b"loop" if do == "link" else b""
        changes.append(Change(place, do, content))
    return _case(draw, "photos", tuple(changes or [Change("photos", "folder")]))


def _case(draw: st.DrawFn, name: str, changes: tuple[Change, ...]) -> Case:
    further = draw(
        st.sampled_from(
            [(), (), ("--set", "validation_fraction=0", "--metric", "test_global_accuracy"), ("--seeds", "2")]
        )
    )
    words: list[str] = ["search", "fedprox", "--dataset", name, *SMALL, *further, "--rounds", "1", "--trials", "1"]
    if draw(st.integers(0, 19)) == 0:
        words += ["--dry-run"]
    if draw(st.integers(0, 9)) == 0:
        words[3] = draw(st.sampled_from([f"./{name}", f"{name}/", *hostile.TEXTS]))
    return Case("data sets", tuple(words), (), changes)


def both() -> Any:
    return st.one_of(archives(), archives(), pictures())
