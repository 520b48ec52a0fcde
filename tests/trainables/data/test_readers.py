"""Each registered data set, read from a tiny one that the test writes in the real on-disk format, packed and unpacked.

Where torchvision or we check MD5 or the number of images, only what is expected is patched. Nothing here uses the
network."""

from __future__ import annotations

import dataclasses
import functools
import gzip
import hashlib
import http.server
import io
import json
import os
import pickle
import re
import shutil
import socket
import struct
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import torch
import torchvision
from PIL import Image

from search_spaces.errors import UserError
from trainables import data
from trainables.data import fetch
from trainables.data.readers import tiny_imagenet
from trainables.data.source import File, Package, Source
from trainables.federation import normalise

RNG = np.random.default_rng(0)

#: The folder of this machine that has the real files, before a test moves the cache; None where there is none.
FASHION_MNIST = next(
    (place for place in data.places(data.describe("fmnist")) if fetch.present(data.describe("fmnist"), place)), None
)


@pytest.fixture(autouse=True)
def offline(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    resolve = socket.getaddrinfo

    def only_this_machine(host: str, *args: object, **kwargs: object) -> object:
        if host != "127.0.0.1":
            raise socket.gaierror(-3, "Temporary failure in name resolution")
        return resolve(host, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", only_this_machine)
    expect(monkeypatch, ("fmnist", "fmnist32"), package=None)  # this machine may have it


def expect(monkeypatch: pytest.MonkeyPatch, names: Iterable[str], **facts: object) -> None:
    """Other facts of registered data sets."""
    for name in names:
        monkeypatch.setitem(data._sources(), name, dataclasses.replace(data.describe(name), **facts))  # type: ignore[arg-type]


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest()


def idx(array: np.ndarray) -> bytes:
    """IDX: two zero bytes, type 8 (unsigned byte), number of dimensions, big-endian sizes, values."""
    return (
        struct.pack(">BBBB", 0, 0, 8, array.ndim)
        + struct.pack(f">{array.ndim}I", *array.shape)
        + array.astype(np.uint8).tobytes()
    )


def in_test_order(x: np.ndarray) -> np.ndarray:
    """The fixed shuffle of the test set."""
    return x[np.random.default_rng(0).permutation(len(x))]


def agrees(loaded: data.Dataset, train: tuple[np.ndarray, np.ndarray], test: tuple[np.ndarray, np.ndarray]) -> None:
    for array, expected in zip((loaded.train_x, loaded.train_y), train, strict=True):
        np.testing.assert_array_equal(array, expected)
    for array, expected in zip((loaded.test_x, loaded.test_y), test, strict=True):
        np.testing.assert_array_equal(array, in_test_order(expected))
    assert loaded.train_x.dtype == loaded.test_x.dtype == np.uint8
    assert loaded.train_y.dtype == loaded.test_y.dtype == np.int64


def agrees_with_facts(loaded: data.Dataset, name: str, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
    facts = data.describe(name)
    assert (loaded.name, loaded.title, loaded.shape) == (name, facts.title, facts.shape)
    assert loaded.mean == pytest.approx(mean)
    assert loaded.std == pytest.approx(std)


# ---------------------------------------------------------------------------------------------- Fashion-MNIST


@pytest.fixture
def fashion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, list[np.ndarray]]:
    arrays = [
        RNG.integers(0, 256, (12, 28, 28)),
        np.arange(12) % 10,
        RNG.integers(0, 256, (5, 28, 28)),
        np.array([3, 9, 0, 1, 1]),
    ]
    names = ["train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"]
    raw = tmp_path / "downloaded" / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    for name, array in zip(names, arrays, strict=True):
        (raw / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
    monkeypatch.setattr(
        torchvision.datasets.FashionMNIST, "resources", [(f"{n}.gz", md5(raw / f"{n}.gz")) for n in names]
    )
    contents = {f"FashionMNIST/raw/{n}": hashlib.md5(idx(a)).hexdigest() for n, a in zip(names, arrays, strict=True)}
    expect(monkeypatch, ("fmnist", "fmnist32"), contents=lambda: contents)
    return tmp_path / "downloaded", arrays


def test_fmnist(fashion: tuple[Path, list[np.ndarray]]) -> None:
    root, (x, y, tx, ty) = fashion
    loaded = data.load("fmnist", str(root))
    agrees(loaded, (x[:, None], y), (tx[:, None], ty))
    agrees_with_facts(loaded, "fmnist", (0.1307,), (0.3081,))
    assert loaded.class_names[-1] == "Ankle boot"
    assert loaded.classes == 10


@pytest.mark.parametrize("layout", ["FashionMNIST/raw", ""])
@pytest.mark.parametrize("packed", ["anew", "no longer", "half of it"])
def test_fmnist_is_the_same_however_it_is_packed(
    layout: str,
    packed: str,
    fashion: tuple[Path, list[np.ndarray]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    root, _ = fashion
    published = data.load("fmnist", str(root))
    folder = tmp_path / "given" / layout
    folder.mkdir(parents=True)
    for number, file in enumerate(sorted((root / "FashionMNIST" / "raw").iterdir())):
        content = gzip.decompress(file.read_bytes())
        if packed == "anew" or (packed == "half of it" and number % 2):
            (folder / file.name).write_bytes(gzip.compress(content, 1, mtime=1))
            assert md5(folder / file.name) != md5(file)
        else:
            (folder / file.stem).write_bytes(content)
    # Prepared once, and on another machine.
    assert data.load("fmnist", str(tmp_path / "given")).hash == published.hash
    assert len(list((tmp_path / "cache" / "prepared").glob("*/meta.json"))) == 1
    monkeypatch.setenv("FEDTUNE_CACHE", str(tmp_path / "second cache"))
    assert data.load("fmnist", str(tmp_path / "given")).hash == published.hash
    assert capfd.readouterr().err == ""


def test_fmnist_is_found_where_debian_puts_it(
    fashion: tuple[Path, list[np.ndarray]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an option and without network; what lies in the cache's downloads comes first."""
    shelf = tmp_path / "shelf"
    (fashion[0] / "FashionMNIST" / "raw").rename(shelf)
    expect(monkeypatch, ("fmnist", "fmnist32"), package=Package("dataset-fashion-mnist", shelf))
    downloads = tmp_path / "cache" / "downloads"
    source = data.describe("fmnist")
    assert data.places(source) == [downloads, shelf]
    assert data.is_ready("fmnist") and data.taken(source) == (False, shelf)
    loaded = data.load("fmnist")
    np.testing.assert_array_equal(loaded.train_x[:, 0], fashion[1][0])
    assert data.taken(source) == (True, shelf) and not downloads.exists()

    shutil.copytree(shelf, downloads)
    assert data.taken(data.describe("fmnist32")) == (False, downloads)
    (shelf / "t10k-labels-idx1-ubyte.gz").write_bytes(b"something else")
    data.load("fmnist32")
    shutil.rmtree(downloads)
    shutil.rmtree(tmp_path / "cache")
    with pytest.raises(UserError, match=r"got another checksum \(.*shelf.*\)\. Install dataset-fashion-mnist again\.$"):
        data.load("fmnist")


@pytest.mark.parametrize(
    ("name", "damage", "got"),
    [
        ("t10k-labels-idx1-ubyte.gz", lambda old: b"something else", "the published file .*, got another checksum"),
        ("train-images-idx3-ubyte", lambda old: old[:-100], "the published file .*, got another checksum"),
        ("train-labels-idx1-ubyte", lambda old: idx(np.arange(3)), "the published file .*, got another checksum"),
        ("train-images-idx3-ubyte.gz", lambda old: old[:-100], "complete and readable, got Compressed file ended"),
        ("train-images-idx3-ubyte.gz", lambda old: old[:-8] + bytes(8), "complete and readable, got CRC check failed"),
    ],
)
def test_a_damaged_file_is_refused_and_kept(
    name: str, damage: Callable[[bytes], bytes], got: str, fashion: tuple[Path, list[np.ndarray]], tmp_path: Path
) -> None:
    raw = fashion[0] / "FashionMNIST" / "raw"
    if not name.endswith(".gz"):
        (raw / name).write_bytes(gzip.decompress((raw / f"{name}.gz").read_bytes()))
        (raw / f"{name}.gz").unlink()
    damaged = damage((raw / name).read_bytes())
    (raw / name).write_bytes(damaged)
    with pytest.raises(UserError, match=rf"must be {got}.* \(.*{name}\)\. Delete it and repeat\.$") as caught:
        data.load("fmnist", str(fashion[0]))
    assert len(caught.value.problems) == 1
    assert (raw / name).read_bytes() == damaged
    assert [path for path in (tmp_path / "cache" / "prepared").iterdir() if path.suffix != ".lock"] == []


def test_fmnist32_is_resized_like_pillow_does(fashion: tuple[Path, list[np.ndarray]]) -> None:
    root, (x, *_) = fashion
    loaded = data.load("fmnist32", str(root))
    assert loaded.shape == (1, 32, 32)
    for image, original in zip(loaded.train_x, x, strict=True):
        expected = np.asarray(Image.fromarray(original.astype(np.uint8)).resize((32, 32), Image.Resampling.BILINEAR))
        assert np.abs(image[0].astype(int) - expected).max() <= 1


@pytest.mark.skipif(
    FASHION_MNIST is None,
    reason="Fashion-MNIST is not here: `make data` brings it, or Debian's package dataset-fashion-mnist.",
)
def test_debians_files_are_the_published_ones(tmp_path: Path) -> None:
    """The checksums in the reader are of real files, and these hold 6,000 and 1,000 images of each class."""
    assert FASHION_MNIST is not None
    raw = fetch.read(data.describe("fmnist"), FASHION_MNIST, tmp_path)
    assert np.bincount(raw.train.labels).tolist() == [6000] * 10
    assert np.bincount(raw.test.labels).tolist() == [1000] * 10


# ---------------------------------------------------------------------------------------------- EMNIST


def emnist_archive(
    folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """gzip.zip with a member gzip/emnist-….gz per part of every kind; images lie transposed in it."""
    first = 1 if kind == "letters" else 0
    x, tx = RNG.integers(0, 256, (7, 28, 28)), RNG.integers(0, 256, (4, 28, 28))
    y, ty = np.array([0, 9, 3, 3, 5, 1, 2]), np.array([9, 0, 4, 4])
    images, labels = "images-idx3", "labels-idx1"
    parts = {
        f"train-{images}": x.transpose(0, 2, 1),
        f"train-{labels}": y + first,
        f"test-{images}": tx.transpose(0, 2, 1),
        f"test-{labels}": ty + first,
    }
    archive = folder / "EMNIST" / "raw" / "gzip.zip"
    archive.parent.mkdir(parents=True)
    with zipfile.ZipFile(archive, "w") as out:
        for name, array in parts.items():
            out.writestr(f"gzip/emnist-{kind}-{name}-ubyte.gz", gzip.compress(idx(array)))
        out.writestr("gzip/emnist-byclass-train-images-idx3-ubyte.gz", b"not looked at")
    monkeypatch.setattr(torchvision.datasets.EMNIST, "md5", md5(archive))
    return x, y, tx, ty


@pytest.mark.parametrize(
    ("name", "kind", "classes", "mean"),
    [("emnist_letters", "letters", 26, 0.1739), ("emnist_digits", "digits", 10, 0.1307)],
)
def test_emnist(
    name: str, kind: str, classes: int, mean: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y, tx, ty = emnist_archive(tmp_path / "in", kind, monkeypatch)
    loaded = data.load(name, str(tmp_path / "in"))
    agrees(loaded, (x[:, None], y), (tx[:, None], ty))
    agrees_with_facts(loaded, name, (mean,), (0.3170 if kind == "letters" else 0.3081,))
    assert loaded.classes == classes
    assert loaded.class_names[3] == ("d" if kind == "letters" else "3")


def unpacked_emnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the letters' four files."""
    emnist_archive(tmp_path / "in", "letters", monkeypatch)
    expect(monkeypatch, ("emnist_letters", "emnist_letters32"), train=7, test=4)
    raw = tmp_path / "plain" / "EMNIST" / "raw"
    raw.mkdir(parents=True)
    with zipfile.ZipFile(tmp_path / "in" / "EMNIST" / "raw" / "gzip.zip") as archive:
        for name in archive.namelist():
            if "letters" in name:
                (raw / Path(name).stem).write_bytes(gzip.decompress(archive.read(name)))
    return raw


def test_emnist_letters32_from_an_unpacked_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked_emnist(tmp_path, monkeypatch)
    loaded = data.load("emnist_letters32", str(tmp_path / "plain"))
    packed = data.load("emnist_letters32", str(tmp_path / "in"))
    assert loaded.shape == (1, 32, 32)
    assert loaded.hash == packed.hash


def test_an_archive_that_was_packed_anew_is_read_and_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """No checksum of its content is known, so each content is one data set, and none is taken for the published one."""
    x, *_ = emnist_archive(tmp_path, "letters", monkeypatch)
    expect(monkeypatch, ["emnist_letters"], train=7, test=4)
    archive = tmp_path / "EMNIST" / "raw" / "gzip.zip"

    def repack(change: Callable[[str, bytes], bytes]) -> None:
        with zipfile.ZipFile(archive) as old:
            members = {name: old.read(name) for name in old.namelist()}
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as new:
            for name, content in members.items():
                new.writestr(name, change(name, content))

    repack(lambda name, content: content)
    same = data.load("emnist_letters", str(tmp_path))
    np.testing.assert_array_equal(same.train_x[:, 0], x)
    told = f"EMNIST letters: only the published archive has a known checksum, and this is not it: {archive}. "
    assert capfd.readouterr().err.startswith(told)
    assert not data.is_ready("emnist_letters")
    assert data.load("emnist_letters", str(tmp_path)).hash == same.hash and capfd.readouterr().err == ""

    negative = gzip.compress(idx(255 - x.transpose(0, 2, 1)))
    repack(lambda name, content: negative if "train-images" in name else content)
    assert data.load("emnist_letters", str(tmp_path)).hash != same.hash


def test_a_changed_unpacked_file_is_not_taken_for_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = unpacked_emnist(tmp_path, monkeypatch)
    first = data.load("emnist_letters", str(tmp_path / "plain"))
    (raw / "emnist-letters-train-images-idx3-ubyte").write_bytes(idx(np.zeros((7, 28, 28))))
    second = data.load("emnist_letters", str(tmp_path / "plain"))
    assert second.train_x.max() == 0 and first.hash != second.hash


@pytest.mark.parametrize(
    ("images", "labels", "got"),
    [
        (idx(np.zeros((7, 28, 28))), idx(np.ones(3)), "7 images and 3 labels"),
        (idx(np.zeros((6, 28, 28))), idx(np.ones(6)), "6 images where 7 were published"),
        (idx(np.zeros((7, 20, 28))), idx(np.ones(7)), "images of 28×20 and not of 28×28"),
        (idx(np.zeros((7, 28, 28)))[:-100], idx(np.ones(7)), ""),
        (b"\1" + idx(np.zeros((7, 28, 28)))[1:], idx(np.ones(7)), ""),
    ],
)
def test_without_checksums_files_must_have_the_published_form(
    images: bytes, labels: bytes, got: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = unpacked_emnist(tmp_path, monkeypatch)
    (raw / "emnist-letters-train-images-idx3-ubyte").write_bytes(images)
    (raw / "emnist-letters-train-labels-idx1-ubyte").write_bytes(labels)
    with pytest.raises(
        UserError, match=rf"^The files of emnist_letters must be in their published format, got .*{got}"
    ):
        data.load("emnist_letters", str(tmp_path / "plain"))
    assert [path for path in (tmp_path / "cache" / "prepared").iterdir() if path.suffix != ".lock"] == []


# ---------------------------------------------------------------------------------------------- SVHN, CIFAR


def test_svhn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MATLAB files: X is (32, 32, 3, n), y is (n, 1) with 10 for the digit 0."""
    expected, known = [], dict(torchvision.datasets.SVHN.split_list)
    for part, n in (("train", 11), ("test", 6)):
        x, y = RNG.integers(0, 256, (n, 3, 32, 32)), np.arange(n) % 10
        path = tmp_path / f"{part}_32x32.mat"
        scipy.io.savemat(
            path,
            {"X": x.transpose(2, 3, 1, 0).astype(np.uint8), "y": np.where(y == 0, 10, y).astype(np.uint8)[:, None]},
        )
        known[part] = [known[part][0], path.name, md5(path)]
        expected.append((x, y))
    monkeypatch.setattr(torchvision.datasets.SVHN, "split_list", known)
    loaded = data.load("svhn", str(tmp_path))
    agrees(loaded, *expected)
    agrees_with_facts(loaded, "svhn", (0.5,) * 3, (0.5,) * 3)


def cifar(
    folder: Path, classes: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Pickled dictionaries: data (n, 3072) uint8, channel-major rows; labels or fine_labels as lists; names in a meta
    file."""
    known = torchvision.datasets.CIFAR10 if classes == 10 else torchvision.datasets.CIFAR100
    inside = folder / known.base_folder
    inside.mkdir(parents=True)
    key, names = ("labels", "label_names") if classes == 10 else ("fine_labels", "fine_label_names")

    def write(name: str, value: dict[str, object]) -> list[str]:
        (inside / name).write_bytes(pickle.dumps(value, protocol=2))
        return [name, md5(inside / name)]

    def batch(name: str, n: int) -> tuple[list[str], np.ndarray, np.ndarray]:
        x, y = RNG.integers(0, 256, (n, 3, 32, 32)), RNG.integers(0, classes, n)
        extra = {} if classes == 10 else {"coarse_labels": [0] * n}
        return (
            write(name, {"data": x.reshape(n, 3072).astype(np.uint8), key: y.tolist(), "filenames": [], **extra}),
            x,
            y,
        )

    train = [batch(name, 4) for name, _ in known.train_list]
    test = batch("test_batch" if classes == 10 else "test", 5)
    meta = write(known.meta["filename"], {names: [f"class {i}" for i in range(classes)]})
    monkeypatch.setattr(known, "train_list", [t[0] for t in train])
    monkeypatch.setattr(known, "test_list", [test[0]])
    monkeypatch.setattr(known, "meta", {**known.meta, "md5": meta[1]})
    return (np.concatenate([t[1] for t in train]), np.concatenate([t[2] for t in train])), test[1:]


@pytest.mark.parametrize("classes", [10, 100])
def test_cifar(classes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train, test = cifar(tmp_path / "plain", classes, monkeypatch)
    known = torchvision.datasets.CIFAR10 if classes == 10 else torchvision.datasets.CIFAR100
    (tmp_path / "packed").mkdir()
    with tarfile.open(tmp_path / "packed" / known.filename, "w:gz") as archive:
        archive.add(tmp_path / "plain" / known.base_folder, known.base_folder)
    monkeypatch.setattr(known, "tgz_md5", md5(tmp_path / "packed" / known.filename))
    plain = data.load(f"cifar{classes}", str(tmp_path / "plain"))
    agrees(plain, train, test)
    # The archive as it was published, packed otherwise, and unpacked are one data set.
    (tmp_path / "anew").mkdir()
    with tarfile.open(tmp_path / "anew" / known.filename.removesuffix(".gz"), "w") as archive:
        archive.add(tmp_path / "plain" / known.base_folder, known.base_folder)
    for folder in ("packed", "anew"):
        monkeypatch.setenv("FEDTUNE_CACHE", str(tmp_path / folder / "cache"))
        assert data.load(f"cifar{classes}", str(tmp_path / folder)).hash == plain.hash
    assert plain.class_names[-1] == f"class {classes - 1}"
    moments = {
        10: ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
        100: ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    }[classes]
    agrees_with_facts(plain, f"cifar{classes}", *moments)


def test_cifar_batch_with_another_checksum_is_not_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cifar(tmp_path, 10, monkeypatch)
    trap = tmp_path / "sprung"

    class Trap:
        def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
            return os.mkdir, (str(trap),)

    (tmp_path / "cifar-10-batches-py" / "data_batch_3").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(UserError, match=r"data_batch_3 of cifar10 must be the published file .*, got another checksum"):
        data.load("cifar10", str(tmp_path))
    (tmp_path / "packed").mkdir()
    with tarfile.open(tmp_path / "packed" / "cifar-10-python.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "cifar-10-batches-py", "cifar-10-batches-py")
    with pytest.raises(UserError, match=r"data_batch_3 of cifar10 must be the published file .*cifar-10-python.tar.gz"):
        data.load("cifar10", str(tmp_path / "packed"))
    assert not trap.exists()


# ---------------------------------------------------------------------------------------------- Tiny-ImageNet, Food-101


def tiny_folder(root: Path) -> None:
    folder = root / "tiny-imagenet-200"
    wnids = ["n02", "n01", "n03"]
    for k, wnid in enumerate(wnids):
        (folder / "train" / wnid / "images").mkdir(parents=True)
        (folder / "train" / wnid / f"{wnid}_boxes.txt").write_text("")
        for i in range(2):
            picture = Image.new("L", (64, 64), 40 * k) if i else Image.new("RGB", (64, 64), (40 * k, 100, 200))
            picture.save(folder / "train" / wnid / "images" / f"{wnid}_{i}.JPEG", quality=100)
    (folder / "val" / "images").mkdir(parents=True)
    for i, level in enumerate((10, 90, 170)):
        Image.new("RGB", (64, 64), (level,) * 3).save(folder / "val" / "images" / f"val_{i}.JPEG", quality=100)
    (folder / "val" / "val_annotations.txt").write_text(
        "val_0.JPEG\tn03\t0\t0\t63\t63\nval_1.JPEG\tn01\t0\t0\t63\t63\nval_2.JPEG\tn02\t0\t0\t63\t63\n"
    )
    (folder / "wnids.txt").write_text("\n".join(wnids) + "\n")
    (folder / "words.txt").write_text(
        "n01\tgoldfish, Carassius auratus\nn02\tEuropean fire salamander\nn03\tbullfrog\nn99\tanother\n"
    )
    (folder / "test" / "images").mkdir(parents=True)
    Image.new("RGB", (64, 64)).save(folder / "test" / "images" / "test_0.JPEG")


def test_tiny_imagenet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_folder(tmp_path)
    expect(monkeypatch, ["tiny_imagenet"], train=6, test=3)
    loaded = data.load("tiny_imagenet", str(tmp_path))
    agrees_with_facts(loaded, "tiny_imagenet", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert loaded.class_names == ("goldfish", "European fire salamander", "bullfrog")
    assert loaded.train_y.tolist() == [0, 0, 1, 1, 2, 2]
    # n01 is the second in wnids.txt: its first image is RGB (40, 100, 200), its second grey 40, now in three channels.
    assert loaded.train_x[0].mean((1, 2)) == pytest.approx([40, 100, 200], abs=2)
    assert loaded.train_x[1].mean((1, 2)) == pytest.approx([40, 40, 40], abs=2)
    by_level = {round(float(x.mean()), -1): int(y) for x, y in zip(loaded.test_x, loaded.test_y, strict=True)}
    assert by_level == {10: 2, 90: 0, 170: 1}

    packed = tmp_path / "packed"
    packed.mkdir()
    with zipfile.ZipFile(packed / "tiny-imagenet-200.zip", "w") as archive:
        for file in sorted((tmp_path / "tiny-imagenet-200").rglob("*")):
            archive.write(file, file.relative_to(tmp_path))
    monkeypatch.setattr(tiny_imagenet, "MD5", md5(packed / "tiny-imagenet-200.zip"))
    assert data.load("tiny_imagenet", str(packed)).hash == loaded.hash


def test_tiny_imagenet_without_a_class_folder(tmp_path: Path) -> None:
    tiny_folder(tmp_path)
    (tmp_path / "tiny-imagenet-200" / "wnids.txt").write_text("n01\nn02\n")
    with pytest.raises(UserError, match=r"the folders below train are not the classes of wnids.txt"):
        data.load("tiny_imagenet", str(tmp_path))


def test_tiny_imagenet_without_a_picture(tmp_path: Path) -> None:
    """What the lists do not name is noticed by its number."""
    tiny_folder(tmp_path)
    with pytest.raises(UserError, match=r"got ValueError: 6 images where 100000 were published \(.*tiny-imagenet-200"):
        data.load("tiny_imagenet", str(tmp_path))


def test_tiny_imagenet_broken_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_folder(tmp_path)
    expect(monkeypatch, ["tiny_imagenet"], train=6, test=3)
    victim = tmp_path / "tiny-imagenet-200" / "train" / "n02" / "images" / "n02_0.JPEG"
    victim.write_bytes(victim.read_bytes()[:200])
    with pytest.raises(UserError, match=r"Images must be complete files in a common format, got .*n02_0.JPEG"):
        data.load("tiny_imagenet", str(tmp_path))


def food_folder(root: Path) -> None:
    folder = root / "food-101"
    (folder / "meta").mkdir(parents=True)
    lists: dict[str, dict[str, list[str]]] = {"train": {}, "test": {}}
    for k, name in enumerate(["waffles", "apple_pie"]):
        (folder / "images" / name).mkdir(parents=True)
        for i, size in enumerate([(512, 384), (300, 512), (120, 90)]):
            Image.new("RGB", size, (100 * k, 50, 20 * i)).save(
                folder / "images" / name / f"{1000 + i}.jpg", quality=100
            )
        lists["train"][name] = [f"{name}/1000", f"{name}/1001"]
        lists["test"][name] = [f"{name}/1002"]
    for part, value in lists.items():
        (folder / "meta" / f"{part}.json").write_text(json.dumps(value))
        (folder / "meta" / f"{part}.txt").write_text("\n".join(p for ps in value.values() for p in ps))
    (folder / "meta" / "classes.txt").write_text("apple_pie\nwaffles\n")


def test_food101(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    food_folder(tmp_path)
    expect(monkeypatch, ["food101"], train=4, test=2)
    loaded = data.load("food101", str(tmp_path))
    agrees_with_facts(loaded, "food101", (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))
    assert loaded.class_names == ("apple pie", "waffles")
    assert loaded.train_y.tolist() == [1, 1, 0, 0]
    for image, label, blue in zip(loaded.train_x, loaded.train_y, (0, 20, 0, 20), strict=True):
        assert image.mean((1, 2)) == pytest.approx([100 * (1 - label), 50, blue], abs=2)
    assert sorted(loaded.test_y.tolist()) == [0, 1]

    packed = tmp_path / "packed"
    packed.mkdir()
    with tarfile.open(packed / "food-101.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "food-101", "food-101")
    monkeypatch.setattr(torchvision.datasets.Food101, "_MD5", md5(packed / "food-101.tar.gz"))
    assert data.load("food101", str(packed)).hash == loaded.hash


# ---------------------------------------------------------------------------------------------- downloads and archives


DOWNLOADED = [n for n in data.names() if data.describe(n).files]


@pytest.mark.parametrize("name", DOWNLOADED)
def test_without_network_one_sentence_says_where_to_put_what(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        data.load(name)
    text = str(caught.value)
    assert text.startswith(f"Data set {name} must be downloadable or in place, got ")
    assert "\n" not in text
    for file in data.describe(name).files:
        assert file in text
    assert f"into {tmp_path / 'cache' / 'downloads'}, or name the folder that has them in FEDTUNE_DATA." in text
    assert not [p for p in (tmp_path / "cache").rglob("*") if p.is_file() and p.suffix != ".lock"]
    assert not data.is_ready(name)


@pytest.fixture
def mirror(fashion: tuple[Path, list[np.ndarray]]) -> Iterator[str]:
    """A web server on this machine with Fashion-MNIST's files."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(fashion[0] / "FashionMNIST" / "raw"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_it_downloads_once_with_a_progress_bar(
    fashion: tuple[Path, list[np.ndarray]],
    mirror: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """Through torchvision's own downloader; the first mirror does not answer."""
    _, (x, *_) = fashion
    monkeypatch.setattr(torchvision.datasets.FashionMNIST, "mirrors", ["http://nowhere.invalid/", mirror])
    loaded = data.load("fmnist")
    np.testing.assert_array_equal(loaded.train_x[:, 0], x)
    shown = capfd.readouterr().err
    assert "downloading train-images-idx3-ubyte.gz from" in shown
    assert "100%" in shown
    assert data.is_ready("fmnist")
    monkeypatch.setattr(torchvision.datasets.FashionMNIST, "mirrors", [])
    assert data.load("fmnist").hash == loaded.hash
    kept = tmp_path / "cache" / "downloads" / "FashionMNIST" / "raw"
    assert sorted(p.name for p in kept.iterdir() if p.suffix != ".lock") == sorted(
        Path(f).name for f in data.describe("fmnist").files
    )


def test_a_download_follows_no_link_and_clears_what_a_killed_one_left(
    fashion: tuple[Path, list[np.ndarray]], mirror: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(torchvision.datasets.FashionMNIST, "mirrors", [mirror])
    source = data.describe("fmnist")
    file = source.remote()[0]
    target = tmp_path / "given" / file.path
    target.parent.mkdir(parents=True)
    (tmp_path / "mine").write_text("mine")
    target.with_name(f"{target.name}.part").symlink_to(tmp_path / "mine")
    left = target.with_name(f".{target.name}.0123456789abcdef.tmp")
    left.write_text("half of it")
    fetch._download(source, file, tmp_path / "given")
    assert (tmp_path / "mine").read_text() == "mine" and not left.exists()
    assert sorted(path.name for path in target.parent.iterdir()) == [target.name, f"{target.name}.part"]


def test_a_download_with_the_wrong_checksum_is_refused(
    mirror: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(torchvision.datasets.FashionMNIST, "mirrors", [mirror])
    names = [n for n, _ in torchvision.datasets.FashionMNIST.resources]
    monkeypatch.setattr(torchvision.datasets.FashionMNIST, "resources", [(n, "0" * 32) for n in names])
    with pytest.raises(
        UserError, match="Data set fmnist must be downloadable or in place, got File not found or corrupted"
    ):
        data.load("fmnist")
    assert not list((tmp_path / "cache" / "downloads").rglob("*.gz*"))


def test_a_download_that_fails_leaves_the_folder_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchvision.datasets.FashionMNIST, "mirrors", ["http://nowhere.invalid/"])
    given = tmp_path / "given"
    given.mkdir()
    expect(monkeypatch, ["fmnist"], package=Package("dataset-fashion-mnist", tmp_path / "nowhere"))
    words = r"must be downloadable or in place, got .* Install Debian's package dataset-fashion-mnist, or put "
    with pytest.raises(UserError, match=f"Data set fmnist {words}"):
        data.load("fmnist", str(given))
    assert list(given.iterdir()) == []
    # What was there before stays, empty or not.
    (given / "FashionMNIST").mkdir()
    with pytest.raises(UserError, match="Data set fmnist must be downloadable or in place"):
        data.load("fmnist", str(given))
    assert [path.name for path in given.rglob("*")] == ["FashionMNIST"]


def test_who_waited_for_a_download_that_failed_makes_the_folder_again(
    fashion: tuple[Path, list[np.ndarray]], mirror: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(torchvision.datasets.FashionMNIST, "mirrors", [mirror])
    source = data.describe("fmnist")
    file = source.remote()[0]
    fetch._download(source, file, tmp_path / "gone")
    assert (tmp_path / "gone" / file.path).is_file()


def test_of_several_who_need_a_file_one_downloads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two users with caches of their own and one folder of data."""
    file = File("a/file.gz", (), hashlib.md5(b"content").hexdigest())
    source = dataclasses.replace(data.describe("fmnist"), files=(file.path,))
    downloads: list[Path] = []

    def download(source: Source, file: File, root: Path) -> None:
        downloads.append(root)
        time.sleep(0.3)
        (root / file.path).write_bytes(b"content")

    monkeypatch.setattr(fetch, "_download", download)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: fetch._find_or_download(source, file, tmp_path), range(4)))
    assert found == [tmp_path / "a" / "file.gz"] * 4 and downloads == [tmp_path]


@pytest.mark.parametrize(
    "member", ["../escaped", "/tmp/escaped", "tiny-imagenet-200/../../escaped", "a\\..\\..\\escaped"]
)
def test_a_zip_that_leaves_its_folder_is_refused(member: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "tiny-imagenet-200.zip"
    with zipfile.ZipFile(archive, "w") as out:
        out.writestr(member, "x")
    monkeypatch.setattr(tiny_imagenet, "MD5", md5(archive))
    with pytest.raises(UserError, match="Archive members must be inside the archive's own folder"):
        data.load("tiny_imagenet", str(tmp_path))
    assert not list(tmp_path.rglob("escaped"))


@pytest.mark.parametrize("kind", ["parent", "link"])
def test_a_tar_that_leaves_its_folder_is_refused(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "cifar-10-python.tar.gz"
    with tarfile.open(archive, "w:gz") as out:
        info = tarfile.TarInfo("../escaped" if kind == "parent" else "cifar-10-batches-py")
        if kind == "link":
            info.type, info.linkname = tarfile.SYMTYPE, str(tmp_path)
            out.addfile(info)
        else:
            info.size = 1
            out.addfile(info, io.BytesIO(b"x"))
    monkeypatch.setattr(torchvision.datasets.CIFAR10, "tgz_md5", md5(archive))
    with pytest.raises(UserError, match="Archive members must be"):
        data.load("cifar10", str(tmp_path))
    assert not list(tmp_path.rglob("escaped"))


def test_a_truncated_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    emnist_archive(tmp_path, "digits", monkeypatch)
    archive = tmp_path / "EMNIST" / "raw" / "gzip.zip"
    archive.write_bytes(archive.read_bytes()[:300])
    monkeypatch.setattr(torchvision.datasets.EMNIST, "md5", md5(archive))
    with pytest.raises(UserError, match=re.escape("Archive must be complete and readable, got File is not a zip file")):
        data.load("emnist_digits", str(tmp_path))


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "SMALL", 1 << 20)
    archive = tmp_path / "cifar-10-python.tar.gz"
    with tarfile.open(archive, "w:gz") as out:
        info = tarfile.TarInfo("cifar-10-batches-py/data_batch_1")
        info.size = 4 << 20
        out.addfile(info, io.BytesIO(bytes(info.size)))
    with pytest.raises(UserError, match="Archive must be at most 100 times as large unpacked, got more"):
        data.load("cifar10", str(tmp_path))


def test_data_dir_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="FEDTUNE_DATA must be an existing folder"):
        data.load("cifar10", str(tmp_path / "nowhere"))


def test_normalised_batches_of_a_registered_set(fashion: tuple[Path, list[np.ndarray]]) -> None:
    root, (x, *_) = fashion
    loaded = data.load("fmnist", str(root))
    expected = torchvision.transforms.Normalize((0.1307,), (0.3081,))(torch.from_numpy(x[:, None]).float() / 255)
    found = normalise(torch.from_numpy(loaded.train_x), torch.tensor(loaded.mean), torch.tensor(loaded.std))
    torch.testing.assert_close(found, expected)
