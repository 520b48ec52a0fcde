"""Trained global models as files: weights in safetensors, beside them a JSON card that says how to rebuild the network.

    from trainables.zoo import load_model
    model, card = load_model("runs/best/trials/0000/model-1000000000.safetensors")
    logits = model(card.normalise(images))      # images: (B, channels, height, width), 0..255; vectors: (B, d)

A card's `batch_norm` says how a model normalises. `batch`: by the statistics of the batch it is given, so images are
best given in batches of a hundred or more that mix the classes. `running`: by statistics that are in the file beside
the weights, so that an image's logits do not depend on the others.

Clients' own models are files too: of each seed the weights of all clients in one safetensors file, beside it their
cards.

    model, card = load_client_model("runs/own/trials/0000/clients-1000000000.safetensors", client=3)

Their tensors are named `<client>/<name>`. A card's details then also have the `client`, the `round` in which its model
was last measured, the `rate` that its architecture is cut to, and `network`: `model`, or `around` where what predicts
is a module around one (`Method.around`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load, save
from torch import Tensor, nn

from search_spaces.errors import UserError, short
from search_spaces.files import open_plain, read_bytes, read_text, replace
from trainables import models, registry
from trainables.federation import Federation
from trainables.method import Method
from trainables.models import Model

VERSION, CLIENTS_VERSION = 2, 1
#: In the card of a model: the hash of its weights (`hash_of`).
WEIGHTS = "weights"


@dataclass(frozen=True)
class Card:
    """What a saved model is: what is needed to rebuild the network and to feed it, stored beside the weights."""

    model: str
    #: (channels, height, width) of an image.
    shape: tuple[int, int, int]
    classes: int
    #: By channel, of images scaled to [0, 1].
    means: tuple[float, ...]
    stds: tuple[float, ...]
    #: Everything else the file says: method, data set, class names, seed, round, metrics.
    details: Mapping[str, Any] = field(default_factory=dict)
    #: Statistics that batch normalisation evaluates with: `batch` or `running`.
    batch_norm: str = "batch"
    #: What a sample is: `images`, `vectors` or `tokens`.
    kind: str = "images"
    #: What is taken off the user's own values, and what they are then divided by, before `means` and `stds` hold.
    offset: float = 0.0
    scale: float = 255.0
    #: How many tokens there are, where samples are sequences of them.
    vocabulary: int = 0

    def normalise(self, samples: Tensor) -> Tensor:
        """Samples as the data set has them, images `(B, ch, H, W)`, vectors `(B, d)` or tokens `(B, length)`, as the
        model is fed them."""
        x = samples.to(torch.float32)
        x = x[:, :, None, None] if x.dim() == 2 else x
        return ((x - self.offset) / self.scale - self.mean) / self.std

    @property
    def mean(self) -> Tensor:
        """`means` as float32 `(channels, 1, 1)`, to be subtracted from images in [0, 1]."""
        return torch.tensor(self.means, dtype=torch.float32)[:, None, None]

    @property
    def std(self) -> Tensor:
        """`stds` as float32 `(channels, 1, 1)`."""
        return torch.tensor(self.stds, dtype=torch.float32)[:, None, None]

    def noting(self, more: Mapping[str, Any]) -> Card:
        """The card with further details."""
        return dataclasses.replace(self, details={**self.details, **more})

    def to_json(self) -> dict[str, Any]:
        """The content of the card's file."""
        own = {"model": self.model, "shape": self.shape, "classes": self.classes, "mean": self.means, "std": self.stds}
        own |= {"batch_norm": self.batch_norm}
        usual = {"kind": "images", "offset": 0.0, "scale": 255.0, "vocabulary": 0}
        own |= {name: getattr(self, name) for name, value in usual.items() if getattr(self, name) != value}
        return {"version": VERSION, **own, **self.details}

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> Card:
        """The card of a file's content. Raises `KeyError` or `TypeError` where something is missing or of another
        kind."""
        of_data = ("kind", "offset", "scale", "vocabulary")
        own = ("version", "model", "shape", "classes", "mean", "std", "batch_norm", *of_data, WEIGHTS)
        channels, height, width = content["shape"]
        return Card(
            content["model"],
            (channels, height, width),
            content["classes"],
            tuple(content["mean"]),
            tuple(content["std"]),
            {name: value for name, value in content.items() if name not in own},
            content["batch_norm"],
            str(content.get("kind", "images")),
            float(content.get("offset", 0.0)),
            float(content.get("scale", 255.0)),
            int(content.get("vocabulary", 0)),
        )


def save_model(path: Path, params: Mapping[str, Tensor], card: Card) -> None:
    """Writes `path` (safetensors) and the card beside it (`.json`), each swapped in whole."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in params.items()}
    replace(path, save(tensors))  # `save_file` makes a file that only its owner may read, whatever the umask says
    content = {**card.to_json(), WEIGHTS: hash_of(tensors)}
    replace(path.with_suffix(".json"), json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def save_clients(path: Path, found: Mapping[int, tuple[Mapping[str, Tensor], Card]]) -> None:
    """Writes the models by client to `path` (safetensors, tensors named `<client>/<name>`) and the cards beside it
    (`.json`), each swapped in whole."""
    tensors = {
        f"{client}/{name}": tensor.detach().cpu().contiguous()
        for client, (params, _) in sorted(found.items())
        for name, tensor in params.items()
    }
    replace(path, save(tensors))
    cards = {
        str(client): {**card.to_json(), WEIGHTS: hash_of(params)} for client, (params, card) in sorted(found.items())
    }
    content = json.dumps({"version": CLIENTS_VERSION, "clients": cards}, indent=2, ensure_ascii=False)
    replace(path.with_suffix(".json"), content + "\n")


def hash_of(params: Mapping[str, Tensor]) -> str:
    """A hash of weights: of their names, kinds, shapes and values."""
    found = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(params.items()):
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        # Tensors of kinds that NumPy lacks, such as bfloat16, are read as their bytes.
        found.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def check_weights(params: Mapping[str, Tensor], content: Mapping[str, Any]) -> None:
    """Raises `ValueError` where these are not the weights that the card with this `content` was written for."""
    if content[WEIGHTS] != hash_of(params):
        raise ValueError("its weights are not those that its card was written for, so one of both files is damaged.")


def check_version(note: Path, version: object, read: int) -> None:
    """Raises `UserError` where a card's file has another version than the one that is read."""
    if version != read:
        raise UserError(
            f"{note} has version {version} and this fedtune reads version {read}. Use the fedtune that wrote it."
        )


def load_model(path: str | Path) -> tuple[nn.Module, Card]:
    """The network in evaluation mode with its weights, and its card. Raises `UserError` where a file is missing,
    unreadable, or a symbolic link."""
    path = Path(path)
    note = path.with_suffix(".json")
    for file in (path, note):
        if not file.is_file():
            raise UserError(
                f"There is no file {str(file)!r}; a saved model is a .safetensors file with a .json card of the "
                f"same name."
            )
    try:
        data = json.loads(read_text(note))
        check_version(note, data["version"], VERSION)
        card = Card.from_json(data)
        model = _network(card)
        weights = load(read_bytes(path))
        model.load_state_dict(weights)
        check_weights(weights, data)
    except UserError:
        raise
    except OSError as error:
        raise UserError(f"{error.filename or path} cannot be read as a model: {error.strerror or error}.") from error
    except Exception as error:
        raise unreadable(path, "a model", error) from error
    return model.eval(), card


def _network(card: Card, rate: float = 1.0) -> Model:
    """The architecture that a card names, with weights to be replaced."""
    return models.build(
        card.model, card.shape, card.classes, rate, batch_norm=card.batch_norm, vocabulary=card.vocabulary
    )


def unreadable(path: Path, what: str, error: Exception) -> UserError:
    """The sentence for a file that is damaged, from what a library says of it."""
    said = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
    return UserError(f"{path} cannot be read as {what}: {said}.")


def card_of_client(method: Method, fed: Federation, network: nn.Module, details: Mapping[str, object]) -> Card:
    """The card of a client's model whose module is `network`."""
    inner = next((part for part in network.modules() if isinstance(part, Model)), fed.network())
    kind = "model" if isinstance(network, Model) else "around"
    own = {"method": method.name, "network": kind, "rate": inner.rate}
    of_data = fed.kind, fed.offset, fed.scale, fed.vocabulary
    return Card(inner.name, fed.shape, fed.classes, fed.mean, fed.std, {**details, **own}, fed.batch_norm, *of_data)


def load_client_model(path: str | Path, client: int) -> tuple[nn.Module, Card]:
    """The network of a client in evaluation mode with its weights, and its card; the other clients' weights are not
    read. Raises `UserError` where a file is missing or unreadable, or has no model of that client."""
    path = Path(path)
    try:
        content = _client_content(path, client)
        card = Card.from_json(content)
        model = _client_module(card)
        os.close(open_plain(path))
        with safe_open(path, "pt") as stored:
            names, start = stored.keys(), f"{client}/"
            weights = {name.removeprefix(start): stored.get_tensor(name) for name in names if name.startswith(start)}
        model.load_state_dict(weights)
        check_weights(weights, content)
    except UserError:
        raise
    except FileNotFoundError as error:
        raise UserError(
            f"There is no file {str(error.filename)!r}; clients' models are a .safetensors file with a .json of the "
            f"same name that has their cards."
        ) from error
    except Exception as error:
        raise unreadable(path, "clients' models", error) from error
    return model.eval(), card


def _client_content(path: Path, client: int) -> Mapping[str, Any]:
    """What the card of that client holds. Raises `UserError` where there is none."""
    note = path.with_suffix(".json")
    content = json.loads(read_text(note))
    check_version(note, content["version"], CLIENTS_VERSION)
    cards = content["clients"]
    if str(client) not in cards:
        raise UserError(f"{path} holds no model of client {client}. It has those of {short(', '.join(cards))}.")
    found: Mapping[str, Any] = cards[str(client)]
    return found


def _client_module(card: Card) -> nn.Module:
    """The module that predicts, with weights to be replaced."""
    rate = float(card.details["rate"])
    model = _network(card, rate)
    if card.details["network"] == "model":
        return model
    around = registry.method(str(card.details["method"])).around
    if around is None:
        raise UserError(
            f"The models of clients of {card.details['method']} are modules of its own, and the method does not say "
            f"how they are made (`Method.around`). Read the weights with safetensors."
        )
    return around(model)
