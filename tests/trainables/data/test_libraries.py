"""Data sets of torchvision and of Hugging Face's datasets by name, from small files in these libraries' own formats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from fedtune.options import SearchRequest
from fedtune.planning.settings import settled
from search_spaces.errors import UserError
from trainables import data


def pictures(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, 28, 28), np.uint8), np.arange(count) % 10


def pairs(x: np.ndarray, y: np.ndarray) -> list[tuple[Any, ...]]:
    return sorted((tuple(image.ravel().tolist()), int(label)) for image, label in zip(x, y, strict=True))


def test_torchvisions_images_by_the_name_of_their_class(tmp_path: Path) -> None:
    raw = tmp_path / "files" / "KMNIST" / "raw"
    raw.mkdir(parents=True)
    parts = {"train": pictures(40, 0), "t10k": pictures(20, 1)}
    for name, (x, y) in parts.items():
        (raw / f"{name}-images-idx3-ubyte").write_bytes(
            bytes([0, 0, 8, 3]) + b"".join(n.to_bytes(4, "big") for n in x.shape) + x.tobytes()
        )
        (raw / f"{name}-labels-idx1-ubyte").write_bytes(
            bytes([0, 0, 8, 1]) + len(y).to_bytes(4, "big") + y.astype(np.uint8).tobytes()
        )
    found = data.load("torchvision:KMNIST", str(tmp_path / "files"))
    assert (found.shape, found.kind, found.class_names[:3]) == ((1, 28, 28), "images", ("o", "ki", "su"))
    assert pairs(found.train_x, found.train_y) == pairs(*parts["train"])
    assert pairs(found.test_x, found.test_y) == pairs(*parts["t10k"])
    assert data.load("torchvision:KMNIST?resize=8", str(tmp_path / "files")).shape == (1, 8, 8)
    with pytest.raises(UserError, match=r"The data set must be a class of torchvision.*got 'torchvision:KMNST'"):
        data.load("torchvision:KMNST")
    with pytest.raises(UserError, match=r"label must be left out for torchvision:KMNIST"):
        data.load("torchvision:KMNIST?label=y")


def saved(folder: Path, **parts: dict[str, Any]) -> str:
    """What `save_to_disk` writes."""
    library = pytest.importorskip("datasets", reason="datasets is not installed: pip install datasets")
    columns = {"image": library.Image(), "label": library.ClassLabel(names=[f"n{i}" for i in range(10)])}
    made = {name: library.Dataset.from_dict(part) for name, part in parts.items()}
    if all("image" in part for part in parts.values()):
        made = {name: part.cast(library.Features(columns)) for name, part in made.items()}
    library.DatasetDict(made).save_to_disk(str(folder))
    return f"hf:{folder}"


def test_hugging_faces_images_and_tables(tmp_path: Path) -> None:
    parts = {"train": pictures(40, 0), "test": pictures(20, 1)}
    held = {name: {"image": [Image.fromarray(one) for one in x], "label": y.tolist()} for name, (x, y) in parts.items()}
    found = data.load(saved(tmp_path / "pictures", **held))
    assert (found.shape, found.class_names[:2]) == ((1, 28, 28), ("n0", "n1"))
    assert pairs(found.train_x, found.train_y) == pairs(*parts["train"])
    assert pairs(found.test_x, found.test_y) == pairs(*parts["test"])
    rng = np.random.default_rng(0)
    table = {"a": rng.normal(size=40).tolist(), "b": list(range(40)), "y": ["ill", "well"] * 20, "who": ["n", "s"] * 20}
    named = saved(tmp_path / "table", train=table, validation=table)
    found = data.load(f"{named}?label=y&client=who")
    assert (found.kind, found.class_names, found.owners) == ("vectors", ("ill", "well"), ("n", "s"))
    expected = pd.DataFrame(table)[["a", "b"]].astype(np.float32).to_numpy()
    np.testing.assert_array_equal(found.train_x[:, :, 0, 0], expected)
    assert sorted(found.test_x[:, 1, 0, 0].tolist()) == list(range(40))
    with pytest.raises(UserError, match=r"label must be the column that holds the classes, got none .*a, b, y, who"):
        data.load(named)


def test_what_cannot_be_had_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own").mkdir()
    monkeypatch.chdir(tmp_path)
    values = settled(SearchRequest("fedavg", dataset="hf:own", set={"label": "y", "model": "cnn"}), []).values
    assert values["dataset"] == f"hf:{tmp_path}/own?label=y", "a folder's path is kept whole, a name as it is"
    values = settled(SearchRequest("fedavg", dataset="hf:org/name", set={"model": "cnn"}), []).values
    assert values["dataset"] == "hf:org/name"
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(UserError, match=r"The package datasets is missing\. Install it: pip install datasets\."):
        data.load("hf:org/name")
