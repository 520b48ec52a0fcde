"""Trained global models as files: weights in safetensors, beside them a JSON card that says how to rebuild the network.

    from trainables.zoo import load_model
    model, card = load_model("runs/best/trials/0000/model-1000000000.safetensors")
    logits = model((images / 255 - card.mean) / card.std)      # images: (B, channels, height, width), 0..255

Models normalise by the statistics of the batch they are given, in evaluation too, so images are best given in batches
of a hundred or more that mix the classes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from search_spaces.errors import UserError
from search_spaces.files import replace, replacing
from trainables import models

VERSION = 1


@dataclass(frozen=True)
class Card:
    """What a saved model is. `mean` and `std` have shape `(channels, 1, 1)` and belong to images scaled to [0, 1]."""

    model: str
    shape: tuple[int, int, int]
    classes: int
    mean: Tensor
    std: Tensor
    #: Everything else the file says: method, seed, round, metrics, data set.
    details: Mapping[str, Any]


def save_model(path: Path, params: Mapping[str, Tensor], card: Mapping[str, Any]) -> None:
    """Writes `path` (safetensors) and the card beside it (`.json`), each swapped in whole."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in params.items()}
    with replacing(path) as temporary:
        save_file(tensors, temporary)
    text = json.dumps({"version": VERSION, **card}, indent=2, ensure_ascii=False)
    replace(path.with_suffix(".json"), text + "\n")


def load_model(path: str | Path) -> tuple[nn.Module, Card]:
    """The network in evaluation mode with its weights, and its card. Raises `UserError` where a file is missing or unreadable."""
    path = Path(path)
    note = path.with_suffix(".json")
    for file in (path, note):
        if not file.is_file():
            raise UserError(f"There is no file {str(file)!r}; a saved model is a .safetensors file with a .json card of the same name.")
    try:
        data = json.loads(note.read_text(encoding="utf-8"))
        version = data["version"]
        if version > VERSION:
            raise UserError(f"{note} has version {version} and this fedtune reads versions up to {VERSION}. Update fedtune.")
        shape = tuple(data["shape"])
        model = models.build(data["model"], shape, data["classes"])
        model.load_state_dict(load_file(path))
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{path} cannot be read as a model: {str(error).splitlines()[0]}") from error
    used = ("version", "model", "shape", "classes", "mean", "std")
    card = Card(data["model"], shape, data["classes"], _per_channel(data["mean"]), _per_channel(data["std"]), {k: v for k, v in data.items() if k not in used})
    return model.eval(), card


def _per_channel(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)[:, None, None]
