"""`fedtune.new`: a first file of a user's own, commented, with a test beside it that runs."""

from __future__ import annotations

import keyword
from pathlib import Path
from string import Template

from search_spaces import files
from search_spaces.errors import UserError, sentence, unknown

METHOD = '''\
"""$name: federated averaging whose server goes a part of the way to the clients' mean.

    client   w_i: local_steps steps of SGD from w
    server   w ← w + η (w̄ - w),   w̄ = Σ_i n_i w_i / Σ_i n_i

    η   server_lr

A method is functions of what it is given: they change no argument, and `rng` is their only randomness.
docs/add-a-method.md says what else a method may declare.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from search_spaces.parameter import real
from trainables.federation import Federation
from trainables.local import LocalTraining
from trainables.method import Limit, Method, Params, Upload
from trainables.methods import fedavg
from trainables.params import average, unpack
from trainables.rng import Rng


@dataclass(frozen=True)
class Config(LocalTraining):
    """Local training (lr, local_steps, batch_size …), and what this method adds. `tune`: what is searched."""

    server_lr: float = real(1.0, low=0.0, high=2.0, symbol="η", doc="Step of the server.", tune=(0.2, 1.5))


@dataclass(frozen=True)
class State:
    """What the server keeps from round to round: tensors, numbers, dictionaries of them."""

    model: Params


def init(config: Config, fed: Federation, rng: Rng) -> State:
    """The server before the first round."""
    return State(fed.initial_params())


def server(config: Config, fed: Federation, state: State, uploads: Sequence[Upload], rng: Rng) -> State:
    """What the server makes of the round's uploads."""
    mean = average((unpack("model", u.payload), fed.sizes[u.client]) for u in uploads)
    return State({name: w + config.server_lr * (mean[name] - w) for name, w in state.model.items()})


METHOD = Method(
    name="$name",
    title="$name",
    reference="mine",
    family="one global model",
    Config=Config,
    State=State,
    init=init,
    download=fedavg.download,  # what the server sends a client: the whole model
    job=fedavg.job,  # what a client trains: the whole model by SGD
    server=server,
    one_pass=True,  # the server goes over the uploads once and needs no two of them together: none is kept
    limits=(Limit({"server_lr": 1.0}, equals="fedavg"),),  # with these values it is that method
)
'''

METHOD_TEST = """\
from types import SimpleNamespace

import torch
from $name import Config, State, server

from trainables.method import Upload
from trainables.rng import Rng


def test_the_server_goes_a_part_of_the_way() -> None:
    uploads = [Upload(0, {"model/w": torch.tensor([2.0])}), Upload(1, {"model/w": torch.tensor([6.0])})]
    fed = SimpleNamespace(sizes=(1, 3))  # the mean is (1 · 2 + 3 · 6) / 4 = 5
    made = server(Config(server_lr=0.5), fed, State({"w": torch.tensor([1.0])}), uploads, Rng(0))
    assert made.model["w"].tolist() == [1 + 0.5 * (5 - 1)]


if __name__ == "__main__":
    test_the_server_goes_a_part_of_the_way()
    print("The test passes.")
"""

MODEL = '''\
"""A network: `fedtune search fedavg --set model=./$name.py:Net`.

The constructor is given what it asks for by name: classes, features (numbers of a sample), channels, height, width,
shape. Samples are normalised images (B, channels, height, width) or vectors (B, features). `forward` returns logits
(B, classes) and ends with `head`, which personalised methods keep or exchange by itself.
"""

import torch
from torch import Tensor, nn


class Net(nn.Module):
    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(features, 64), nn.ReLU(), nn.Dropout(0.1))
        self.head = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))
'''

MODEL_TEST = """\
from pathlib import Path

import torch

from trainables import models

SHAPES = [(1, 8, 8), (20, 1, 1)]  # images of 8 x 8 and vectors of 20 numbers: keep what your network is for


def test_it_returns_logits() -> None:
    name = models.named(str(Path(__file__).with_name("$name.py")) + ":Net")
    for shape in SHAPES:
        assert models.build(name, shape, classes=3)(torch.randn(5, *shape)).shape == (5, 3)


if __name__ == "__main__":
    test_it_returns_logits()
    print("The test passes.")
"""

DATASET = '''\
"""Writes $name.npz: `python $name.py`, then `fedtune search fedavg --dataset $name.npz`.

x   images (n, height, width), (n, height, width, channels) or (n, channels, height, width): bytes, or floats;
    or vectors (n, d)
y   classes (n,): whole numbers or words
With x_train, y_train, x_test and y_test in place of x and y the test part is yours; otherwise 20 % of every class is
set aside.
An array `client` (n,) of vectors says whose sample each is: add `--set client=client`.
"""

from pathlib import Path

import numpy as np


def samples() -> dict[str, np.ndarray]:
    """Put your own data here."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 600)
    x = rng.normal(size=(600, 8)) + y[:, None]
    return {"x": x.astype("float32"), "y": np.array(["low", "middle", "high"])[y], "client": rng.integers(0, 5, 600)}


if __name__ == "__main__":
    np.savez(Path(__file__).with_suffix(".npz"), **samples())
'''

DATASET_TEST = """\
from tempfile import TemporaryDirectory

import numpy as np
from $name import samples

from trainables import data


def test_it_is_a_data_set() -> None:
    held = samples()
    with TemporaryDirectory() as folder:
        np.savez(f"{folder}/$name.npz", **held)
        found = data.load(f"{folder}/$name.npz" + "?client=client" * ("client" in held))
        assert set(found.class_names) == set(map(str, held["y"]))
        assert len(found.train_y) + len(found.test_y) == len(held["y"])


if __name__ == "__main__":
    test_it_is_a_data_set()
    print("The test passes.")
"""

SPACE = """\
# A search space: `fedtune search fedavg --space $name.yaml`. `fedtune methods fedavg` lists what may stand here.
method: fedavg
title: $name
search:                       # what is looked for
  lr: {low: 0.001, high: 0.3, log: true}      # an interval
  batch_size: {grid: [16, 32, 64]}            # numbers that a grid search visits
# vary:                       # conditions: every configuration runs under each
#   omega: [1, 0.1]
fix:                          # everything else that is not as declared
  local_steps: 10
profiles:
  small: {rounds: 10}
metric: val_global_accuracy
"""

SPACE_TEST = """\
from pathlib import Path

from search_spaces import presets
from trainables import registry


def test_it_is_a_space() -> None:
    path = Path(__file__).with_name("$name.yaml")
    space = presets.load("fedavg", str(path), registry.declared("fedavg"))
    assert list(space.search) == ["lr", "batch_size"]


if __name__ == "__main__":
    test_it_is_a_space()
    print("The test passes.")
"""

#: By kind: how the file ends, its text, and that of its test.
KINDS = {
    "method": (".py", METHOD, METHOD_TEST),
    "model": (".py", MODEL, MODEL_TEST),
    "dataset": (".py", DATASET, DATASET_TEST),
    "space": (".yaml", SPACE, SPACE_TEST),
}
NEXT = {
    "method": "fedtune search ./{name}.py --trials 4 --rounds 3",
    "model": "fedtune search fedavg --set model=./{name}.py:Net --trials 4 --rounds 3",
    "dataset": "python {name}.py && "
    "fedtune search fedavg --dataset {name}.npz --set client=client --trials 4 --rounds 3",
    "space": "fedtune search fedavg --space {name}.yaml --trials 4 --rounds 3",
}


def new(kind: str, name: str) -> list[Path]:
    """Writes a commented example of a method, a model, a dataset or a space into the current folder, and a test of it.

    Returns both files. Raises `UserError` where the name is none, or one of the files is there already."""
    if kind not in KINDS:
        raise UserError(unknown("kind", kind, KINDS))
    if not name.isidentifier() or not name.isascii() or keyword.iskeyword(name):
        raise UserError(sentence("name", "a Python name, such as mymethod", name))
    ending, *texts = KINDS[kind]
    paths = [files.given(f"{name}{ending}"), files.given(f"test_{name}.py")]
    for path in paths:
        if path.exists():
            raise UserError(f"{path} is there already. Choose another name, or remove it.")
    for path, text in zip(paths, texts, strict=True):
        try:
            files.replace(path, Template(text).substitute(name=name))
        except OSError as error:
            raise files.cannot_write(path, error, "Choose another folder.") from error
    return paths
