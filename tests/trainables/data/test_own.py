"""The user's own folder of images or .npz file: what is accepted, and the one sentence for everything that is not."""

from __future__ import annotations

import os
import pickle
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from search_spaces.errors import UserError
from trainables import data

RNG = np.random.default_rng(0)


def npz(folder: Path, **arrays: Any) -> str:
    path = folder / "mydata.npz"
    np.savez(path, **arrays)
    return str(path)


X = RNG.integers(0, 256, (40, 6, 7)).astype(np.uint8)
Y = np.arange(40) % 4


def both(loaded: data.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """All images and labels, in an order that does not depend on the split."""
    x, y = np.concatenate([loaded.train_x, loaded.test_x]), np.concatenate([loaded.train_y, loaded.test_y])
    order = np.lexsort(x.reshape(len(x), -1).T)
    return x[order], y[order]


def expect(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = np.lexsort(x.reshape(len(x), -1).T)
    return x[order], y[order]


def test_npz_with_x_and_y_is_split_by_class(tmp_path: Path) -> None:
    loaded = data.load(npz(tmp_path, x=X, y=Y))
    assert loaded.shape == (1, 6, 7)
    assert (loaded.name, loaded.classes, loaded.class_names) == ("mydata.npz", 4, ("0", "1", "2", "3"))
    assert np.bincount(loaded.test_y).tolist() == [2] * 4
    for ours, expected in zip(both(loaded), expect(X[:, None], Y), strict=True):
        np.testing.assert_array_equal(ours, expected)
    np.testing.assert_allclose(loaded.mean, [(np.asarray(loaded.train_x) / 255).mean()])
    np.testing.assert_allclose(loaded.std, [(np.asarray(loaded.train_x) / 255).std()])


def test_npz_with_four_parts(tmp_path: Path) -> None:
    loaded = data.load(
        npz(
            tmp_path,
            x_train=X[:30],
            y_train=Y[:30] * 10 - 5,
            x_test=X[30:],
            y_test=Y[30:, None] * 10 - 5,
            note="other arrays are ignored",
        )
    )
    np.testing.assert_array_equal(loaded.train_x, X[:30, None])
    np.testing.assert_array_equal(loaded.train_y, Y[:30])
    assert loaded.class_names == ("-5", "5", "15", "25")
    np.testing.assert_array_equal(loaded.test_x, X[30:, None][np.random.default_rng(0).permutation(10)])
    assert sorted(loaded.test_y.tolist()) == sorted(Y[30:].tolist())


COLOUR = RNG.integers(0, 256, (20, 3, 5, 6)).astype(np.uint8)


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (COLOUR, COLOUR),
        (COLOUR.transpose(0, 2, 3, 1), COLOUR),
        (COLOUR[:, :1], COLOUR[:, :1]),
        (COLOUR[:, 0, :, :, None], COLOUR[:, :1]),
        (COLOUR[:, 0], COLOUR[:, :1]),
        # Both ends could be channels: the last one is.
        (COLOUR[:, :, :, :3], COLOUR[:, :, :, :3].transpose(0, 3, 1, 2)),
        (COLOUR.astype(np.int64), COLOUR),
        (COLOUR.astype(np.float64), COLOUR),
        (COLOUR.astype(np.float32) / 255, COLOUR),
        (COLOUR > 127, np.where(COLOUR > 127, 255, 0)),
        (COLOUR.astype(np.float32) + 0.3 - (COLOUR == 255), COLOUR - (COLOUR == 255)),
    ],
)
def test_npz_shapes_and_values(x: np.ndarray, expected: np.ndarray, tmp_path: Path) -> None:
    loaded = data.load(npz(tmp_path, x=x, y=np.arange(20) % 2))
    assert loaded.shape == expected.shape[1:]
    for ours, theirs in zip(both(loaded), expect(expected, np.arange(20) % 2), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_the_training_part_decides_on_the_range(tmp_path: Path) -> None:
    x = np.linspace(0, 1, 40 * 4).reshape(40, 2, 2)
    loaded = data.load(npz(tmp_path, x_train=x, y_train=Y, x_test=x[:4] * 0, y_test=Y[:4]))
    assert loaded.train_x.max() == 255
    with pytest.raises(
        UserError, match=r"x_test must be in \[0, 1\] like the training images, got values from 0 to 200"
    ):
        data.load(npz(tmp_path, x_train=x, y_train=Y, x_test=x * 200, y_test=Y))


def test_labels_as_whole_floats_of_any_value(tmp_path: Path) -> None:
    loaded = data.load(npz(tmp_path, x=X, y=Y.astype(np.float64) * 3 + 100))
    assert loaded.class_names == ("100", "103", "106", "109")


def test_another_content_under_the_same_name(tmp_path: Path) -> None:
    first = data.load(npz(tmp_path, x=X, y=Y))
    second = data.load(npz(tmp_path, x=255 - X, y=Y))
    assert first.hash != second.hash
    third = data.load(npz(tmp_path, x=X, y=Y))
    assert third.hash == first.hash


BAD: list[tuple[dict[str, Any], str]] = [
    ({"a": X, "y": Y}, r"An .npz data set must be arrays x and y, or x_train, y_train, x_test and y_test, got a, y \("),
    ({}, r"An .npz data set must be arrays x and y.*, got no arrays .*np.savez\(FILE, x=…, y=…\) names them"),
    ({"x_train": X, "y_train": Y, "x_test": X}, r"An .npz data set must be arrays x and y"),
    ({"x": X, "y": Y[:-1]}, r"x and y must be of the same length, got shapes \(40, 6, 7\) and \(39,\)"),
    ({"x_train": X, "y_train": Y, "x_test": X, "y_test": Y[:3]}, r"x_test and y_test must be of the same length"),
    ({"x": X[:0], "y": Y[:0]}, r"x must be at least one image, got none"),
    ({"x": np.float64(3), "y": Y}, r"x and y must be of the same length"),
    ({"x": np.where(X < 20, np.nan, X), "y": Y}, r"x must be finite everywhere, got NaN or infinity"),
    ({"x": np.full((40, 2, 2), np.nan), "y": Y}, r"x must be finite everywhere"),
    ({"x": np.where(X == 0, np.inf, X), "y": Y}, r"x must be finite everywhere"),
    ({"x": X.astype(int) - 128, "y": Y}, r"x must be in \[0, 1\] or \[0, 255\], got values from -128 to 127"),
    ({"x": X.astype(int) * 2, "y": Y}, r"x must be in \[0, 1\] or \[0, 255\], got values from 0 to 510"),
    ({"x": X.astype(complex), "y": Y}, r"x must be numbers, got complex128"),
    ({"x": X.astype(str), "y": Y}, r"x must be numbers, got <U"),
    (
        {"x": X.reshape(40, 6, 7, 1, 1), "y": Y},
        r"x must be of shape \(n, d\), or of images, \(n, H, W\), \(n, H, W, C\) or \(n, C, H, W\) with C = 1 or 3, "
        r"got \(40, 6, 7, 1, 1\)",
    ),
    ({"x": np.zeros((40, 4, 5, 2), np.uint8), "y": Y}, r"x must be of shape .* got \(40, 4, 5, 2\)"),
    ({"x": np.zeros((40, 0, 5), np.uint8), "y": Y}, r"x must be of shape .* got \(40, 1, 0, 5\)"),
    ({"x": X, "y": Y + 0.5}, r"y must be whole numbers, words, or true and false, got float64 such as 0.5"),
    (
        {"x": X, "y": np.where(Y == 2, np.nan, Y)},
        r"y must be whole numbers, words, or true and false, got float64 such as nan",
    ),
    ({"x": X, "y": Y * 1j}, r"y must be whole numbers, words, or true and false, got complex128 such as 0j"),
    (
        {"x": X, "y": np.eye(4)[Y]},
        r"y must be one whole number per image, got shape \(40, 4\) .* Use argmax\(1\) of one-hot labels.",
    ),
    ({"x": X, "y": Y * 0}, r"A data set must be of at least 2 classes, got only 0"),
    (
        {"x": X, "y": np.arange(40)},
        r"A data set without a test part must be at least 2 images of some class, got 1 of each",
    ),
    (
        {"x_train": X, "y_train": Y, "x_test": X, "y_test": Y + 1},
        r"The classes of the test part must be among those of the training part, got 4",
    ),
    (
        {"x_train": X, "y_train": Y, "x_test": X[:, :5], "y_test": Y},
        r"Test images must be of the training images' shape \(1, 6, 7\), got \(1, 5, 7\)",
    ),
    ({"x": np.array([None] * 40, dtype=object), "y": Y}, r"An .npz data set must be a complete file of plain arrays"),
]


@pytest.mark.parametrize(("arrays", "message"), BAD, ids=[m[:45] for _, m in BAD])
def test_npz_that_cannot_be_used(arrays: dict[str, Any], message: str, tmp_path: Path, empty_cache: Path) -> None:
    path = npz(tmp_path, **arrays)
    with pytest.raises(UserError, match=f"^{message}") as caught:
        data.load(path)
    assert path in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not [p for p in (empty_cache / "prepared").iterdir() if p.suffix != ".lock"]


@pytest.mark.parametrize("content", [b"", b"not a zip file", b"PK\x03\x04 truncated"])
def test_corrupt_npz(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "mydata.npz").write_bytes(content)
    with pytest.raises(UserError, match=r"^An .npz data set must be a complete file of plain arrays"):
        data.load(str(tmp_path / "mydata.npz"))


def test_truncated_and_damaged_npz(tmp_path: Path) -> None:
    whole = Path(npz(tmp_path, x=X, y=Y)).read_bytes()
    for broken in (whole[:-200], whole[:500] + bytes(100) + whole[600:]):
        (tmp_path / "mydata.npz").write_bytes(broken)
        with pytest.raises(UserError, match=r"^An .npz data set must be a complete file of plain arrays"):
            data.load(str(tmp_path / "mydata.npz"))


def test_pickles_in_an_npz_are_not_loaded(tmp_path: Path) -> None:
    sprung = tmp_path / "sprung"

    class Trap:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return os.mkdir, (str(sprung),)

    with zipfile.ZipFile(tmp_path / "mydata.npz", "w") as archive:
        archive.writestr("x.npy", pickle.dumps(Trap()))
        archive.writestr("y.npy", pickle.dumps(Trap()))
    with pytest.raises(UserError, match=r"^An .npz data set must be a complete file of plain arrays"):
        data.load(str(tmp_path / "mydata.npz"))
    assert not sprung.exists()


def picture(path: Path, value: Any, mode: str = "RGB", size: tuple[int, int] = (7, 5)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value).save(path)


def test_folder_with_train_and_test(tmp_path: Path) -> None:
    for k, name in enumerate(["cat", "dog"]):
        for i in range(3):
            picture(tmp_path / "photos" / "train" / name / f"{i}.png", (10 * k, 100, i))
        picture(tmp_path / "photos" / "train" / name / "deeper" / "x.PNG", (10 * k, 100, 77))
        (tmp_path / "photos" / "train" / name / "notes.txt").write_text("not an image")
    picture(tmp_path / "photos" / "test" / "dog" / "t.png", (200, 0, 0))
    loaded = data.load(str(tmp_path / "photos"))
    assert (loaded.name, loaded.class_names, loaded.shape) == ("photos", ("cat", "dog"), (3, 5, 7))
    assert loaded.train_y.tolist() == [0] * 4 + [1] * 4
    assert loaded.train_x[:, 0, 0, 0].tolist() == [0] * 4 + [10] * 4
    assert loaded.train_x[:4, 2, 4, 6].tolist() == [0, 1, 2, 77]
    assert loaded.test_y.tolist() == [1]
    assert loaded.test_x[0].mean((1, 2)).tolist() == [200, 0, 0]


def test_single_folder_is_split_by_class(tmp_path: Path) -> None:
    for name, n in (("a", 10), ("b", 5), ("c", 1)):
        for i in range(n):
            picture(tmp_path / "photos" / name / f"{i:02}.png", 10 * i + ord(name) - ord("a"), "L")
    loaded = data.load(str(tmp_path / "photos"))
    assert loaded.shape == (1, 5, 7)
    assert np.bincount(loaded.train_y).tolist() == [8, 4, 1]
    assert np.bincount(loaded.test_y, minlength=3).tolist() == [2, 1, 0]
    x, y = both(loaded)
    assert [(int(v[0, 0, 0]) % 10, int(k)) for v, k in zip(x, y, strict=True)] == [(int(k), int(k)) for k in y]
    assert data.load(str(tmp_path / "photos")).hash == loaded.hash


def test_grey_pictures_become_colour_among_colour_and_transparency_is_dropped(tmp_path: Path) -> None:
    for i in range(2):
        picture(tmp_path / "photos" / "a" / f"{i}.png", 50, "L")
        picture(tmp_path / "photos" / "b" / f"{i}.png", (1, 2, 3, 128), "RGBA")
    loaded = data.load(str(tmp_path / "photos"))
    assert loaded.shape == (3, 5, 7)
    x, y = both(loaded)
    assert {(*v[:, 0, 0].tolist(), int(k)) for v, k in zip(x, y, strict=True)} == {(50, 50, 50, 0), (1, 2, 3, 1)}


def test_the_name_of_a_picture_may_be_any(tmp_path: Path) -> None:
    for name in "ab":
        for i in range(3):
            picture(tmp_path / "p" / name / os.fsdecode(b"\xff%d.png" % i), (i, 0, 0))
    assert len(data.load(str(tmp_path / "p")).train_y) > 0


def test_a_changed_image_or_a_renamed_class_is_noticed(tmp_path: Path) -> None:
    for name in "ab":
        for i in range(3):
            picture(tmp_path / "p" / name / f"{i}.png", (i, 0, 0))
    hashes = [data.load(str(tmp_path / "p")).hash]
    picture(tmp_path / "p" / "a" / "0.png", (99, 0, 0))
    hashes.append(data.load(str(tmp_path / "p")).hash)
    (tmp_path / "p" / "b").rename(tmp_path / "p" / "c")
    renamed = data.load(str(tmp_path / "p"))
    hashes.append(renamed.hash)
    assert renamed.class_names == ("a", "c")
    assert len(set(hashes)) == 3


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda p: [picture(p / name / "0.png", 0, "L") for name in ("a", os.fsdecode(b"\xff"))],
            "The name of a class folder must be text that can be printed, got '\\udcff'",
        ),
        (lambda p: None, "A folder of images must be filled with one sub-folder per class, got none"),
        (
            lambda p: [picture(p / f"{i}.png", 0, "L") for i in range(3)],
            "A folder of images must be filled with one sub-folder per class, got none",
        ),
        (
            lambda p: [picture(p / "a" / f"{i}.png", 0, "L") for i in range(3)],
            "A data set must be of at least 2 classes, got only 'a'",
        ),
        (
            lambda p: [picture(p / "a" / "0.png", 0, "L"), (p / "b").mkdir()],
            r"Every class folder must be filled with images (.bmp, ",
        ),
        (
            lambda p: [picture(p / n / "0.png", 0, "L") for n in "ab"],
            "A data set without a test part must be at least 2 images of some class, got 1 of each",
        ),
        (
            lambda p: [picture(p / n / f"{i}.png", 0, "L", (4 + i, 5)) for n in "ab" for i in range(2)],
            "Images must be of one size, 4×5 like 0.png, got 5×5",
        ),
        (
            lambda p: [picture(p / n / f"{i}.tif", 0, "F") for n in "ab" for i in range(2)],
            "Images must be 8 bits per channel, grey or colour, or grey of 16 bits, got mode F",
        ),
        (
            lambda p: [
                picture(p / t / n / "0.png", 0, "L") for t, n in [("train", "a"), ("train", "b"), ("test", "c")]
            ],
            "The classes of the test part must be among those of the training part, got 'c'",
        ),
    ],
)
def test_folders_that_cannot_be_used(build: Any, message: str, tmp_path: Path, empty_cache: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    build(folder)
    with pytest.raises(UserError, match=f"^{re.escape(message)}") as caught:
        data.load(str(folder))
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("damage", [lambda b: b"", lambda b: b"text", lambda b: b[:-200], lambda b: b[:60]])
def test_broken_picture(damage: Any, tmp_path: Path) -> None:
    for name in "ab":
        for i in range(3):
            path = tmp_path / "photos" / name / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(RNG.integers(0, 256, (30, 30, 3)).astype(np.uint8)).save(path)
    victim = tmp_path / "photos" / "b" / "1.png"
    victim.write_bytes(damage(victim.read_bytes()))
    with pytest.raises(
        UserError,
        match=rf"^Images must be complete files in a common format, got .*{re.escape(str(victim))}\). Replace or "
        rf"remove it.",
    ):
        data.load(str(tmp_path / "photos"))


def test_a_file_that_is_neither(tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("1,2")
    with pytest.raises(UserError, match=r"A data set of your own must be a folder of images, an \.npz file or a table"):
        data.load(str(tmp_path / "data.txt"))


def test_a_dangling_picture(tmp_path: Path) -> None:
    for name in "ab":
        picture(tmp_path / "photos" / name / "0.png", 0, "L")
    (tmp_path / "photos" / "a" / "1.png").symlink_to(tmp_path / "gone.png")
    with pytest.raises(UserError, match="A data set of your own must be readable, got No such file or directory"):
        data.load(str(tmp_path / "photos"))
