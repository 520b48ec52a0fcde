"""Data sets that another library knows by name: Hugging Face's `datasets`, and torchvision.

    --dataset hf:ylecun/mnist        --dataset hf:mstz/wine --set label=quality        --dataset hf:./folder
    --dataset torchvision:KMNIST     --dataset torchvision:Flowers102 --set resize=32

They are downloaded by that library on first use (torchvision's into the folder of our own downloads), and prepared in
the cache like any other, where they stay: what a name means is not asked for again, and a run records the content's
hash. `hf:FOLDER` is a folder that `save_to_disk` wrote, or one with files that `load_dataset` reads.

Of Hugging Face: the part `train`, and `test` or else `validation`. A column of images and one of labels (`label` names
it, where it is not the only column of classes), or a table, as `trainables.data.own_table` has it. Of torchvision: the
classes of `torchvision.datasets` whose items are an image and a number.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_spaces.errors import Shown, UserError, closest, nearest, sentence
from search_spaces.files import given
from trainables.data import cache, own, own_table
from trainables.data.dataset import Dataset, Raw
from trainables.data.own import Reference

HUGGING_FACE, TORCHVISION = "hf:", "torchvision:"
PREFIXES = (HUGGING_FACE, TORCHVISION)


def is_named(text: str) -> bool:
    """Whether a text names a data set of another library."""
    return text.startswith(PREFIXES)


def whole(reference: Reference) -> Reference:
    """The reference with the whole path of a folder."""
    name = reference.path.removeprefix(HUGGING_FACE)
    folder = given(name)
    if reference.path == name or not folder.is_dir():
        return reference
    return Reference(HUGGING_FACE + str(folder.resolve()), **{key: getattr(reference, key) for key in own.OPTIONS})


def load(asked: Reference, root: Path) -> Dataset:
    """The data set of that name, whose files torchvision keeps in `root`. Raises `UserError` with one sentence where it
    cannot be had or used."""
    name = asked.path.partition(":")[2]
    hugging = asked.path.startswith(HUGGING_FACE)
    useless = ("samples",) if hugging else ("samples", "label", "client")
    for option in useless:
        if getattr(asked, option) is not None:
            raise UserError(sentence(option, f"left out for {asked.path}", getattr(asked, option)))
    size = asked.size()
    folder = given(name)
    files = sorted(path for path in folder.rglob("*") if path.is_file()) if hugging and folder.is_dir() else []
    content = [own.content_of(files)] if files else []
    key = cache.key(asked.path, asked.label, asked.client, size, *content)
    title = str(asked)
    if hugging:
        return cache.prepare(key, title, title, lambda work: _of_hugging_face(name, asked, size))
    return cache.prepare(key, title, title, lambda work: _of_torchvision(name, size, root))


def _library(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(f"The package {name} is missing. Install it: pip install {name}.") from error


def _of_hugging_face(name: str, asked: Reference, size: tuple[int, int] | None) -> Raw:
    datasets = _library("datasets")
    where = asked.path
    folder = given(name)
    is_saved = any((folder / file).exists() for file in ("dataset_dict.json", "state.json"))
    try:
        found: Any = datasets.load_from_disk(str(folder)) if is_saved else datasets.load_dataset(name)
    except Exception as error:  # the library and all that it downloads with
        raise _not_to_be_had(where, error) from error
    parts = dict(found) if hasattr(found, "keys") else {"train": found}
    train = parts.get("train")
    if train is None:
        raise UserError(sentence(f"The data set {where}", "one with a part train", Shown(", ".join(parts))))
    chosen = [train, *[parts[key] for key in ("test", "validation") if key in parts][:1]]
    kinds = {column: type(feature).__name__ for column, feature in train.features.items()}
    images = [column for column, kind in kinds.items() if kind == "Image"]
    if not images:
        return own_table.of_frames([part.to_pandas() for part in chosen], asked.label, asked.client, where)
    label = _label(asked.label, [column for column, kind in kinds.items() if kind == "ClassLabel"], kinds, where)
    if asked.client is not None:
        raise UserError(sentence("client", "left out for images, whose clients are drawn", asked.client, where))
    x = [_pictures(part[images[0]], size, where) for part in chosen]
    values = [np.asarray(part[label]) for part in chosen]
    names = tuple(getattr(train.features[label], "names", None) or ())
    return _labelled(x, values, names, where)


def _label(asked: str | None, classes: list[str], columns: Iterable[str], where: str) -> str:
    if asked is None and len(classes) == 1:
        return classes[0]
    if asked is None or asked not in columns:
        fix = f"Its columns are {', '.join(columns)}. {closest(asked or '', columns)}".strip()
        raise UserError(sentence("label", "the column that holds the classes", asked or Shown("none"), where, fix))
    return asked


def _of_torchvision(name: str, size: tuple[int, int] | None, root: Path) -> Raw:
    library = _library("torchvision.datasets")
    where = TORCHVISION + name
    kind: Any = getattr(library, name, None)
    takes = inspect.signature(kind).parameters if inspect.isclass(kind) else {}
    if "root" not in takes or not {"train", "split"} & takes.keys():
        able = [one for one in library.__all__ if "root" in inspect.signature(getattr(library, one)).parameters]
        must = "a class of torchvision.datasets with a training and a test part"
        raise UserError(sentence("The data set", must, where, fix=nearest(name, able)))
    download = {"download": True} if "download" in takes else {}
    try:
        with cache.writable():
            root.mkdir(parents=True, exist_ok=True)
        made = [
            kind(root=str(root), **({"train": part == "train"} if "train" in takes else {"split": part}), **download)
            for part in ("train", "test")
        ]
        items = [[part[place] for place in range(len(part))] for part in made]
    except UserError:
        raise
    except Exception as error:  # torchvision and all that it downloads with
        raise _not_to_be_had(where, error) from error
    x = [_pictures([image for image, _ in part], size, where) for part in items]
    values = [np.asarray([label for _, label in part]) for part in items]
    names = getattr(made[0], "classes", None)
    return _labelled(x, values, tuple(map(str, names)) if isinstance(names, Sequence) else (), where)


def _labelled(x: list[NDArray[Any]], values: list[NDArray[Any]], names: tuple[str, ...], where: str) -> Raw:
    """Images with labels that are whole numbers, or words; `names` of the numbers, where these are known."""
    keys = ("label",) * len(values)
    found, y = own.labels_of(values, keys, where)
    if names and all(name.isdigit() and int(name) < len(names) for name in found):
        found = tuple(names[int(name)] for name in found)
    own_table.at_least_two(found, where)
    return own.images_of(x, ("image",) * len(x), y, found, where)


def _pictures(pictures: Iterable[Any], size: tuple[int, int] | None, where: str) -> NDArray[np.uint8]:
    """Images of Pillow's as `(n, H, W)` where all are grey, else `(n, H, W, 3)`."""
    from PIL import Image

    listed = list(pictures)
    strange = next((one for one in listed if not isinstance(one, Image.Image)), None)
    if strange is not None or not listed:
        got = "none" if not listed else type(strange).__name__
        raise UserError(sentence(f"The samples of {where}", "images", Shown(got)))
    grey = all(one.mode in ("1", "L") for one in listed)
    made = [one.convert("L" if grey else "RGB") for one in listed]
    wanted = made[0].size if size is None else size[::-1]
    for one in made:
        if size is None and one.size != wanted:
            must = f"of one size, {wanted[0]}×{wanted[1]} like the first"
            fix = "Give --set resize=32, or another size, to bring all to one."
            raise UserError(sentence(f"The images of {where}", must, Shown(f"{one.size[0]}×{one.size[1]}"), fix=fix))
    same = [one if one.size == wanted else one.resize(wanted, Image.Resampling.BILINEAR) for one in made]
    return np.stack([np.asarray(one) for one in same])


def _not_to_be_had(where: str, error: Exception) -> UserError:
    said = " ".join(str(error).split()) or type(error).__name__
    fix = "Check the name, and that there is a network on first use."
    return UserError(sentence(f"The data set {where}", "one that its library can load", Shown(said), fix=fix))
