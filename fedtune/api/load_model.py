"""`fedtune.load_model`: a trained network from its file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from search_spaces.errors import UserError

if TYPE_CHECKING:
    from torch import nn

    from trainables.zoo import Card


def load_model(path: str | Path, client: int | None = None) -> tuple[nn.Module, Card]:
    """The network in evaluation mode with its weights, and its card (`trainables.zoo.Card`): of a global model
    (`model-<seed>.safetensors`), or of one of the clients (`clients-<seed>.safetensors`), which is named by `client`.

    Raises `UserError` where a file is missing or unreadable, or does not hold what is asked for."""
    of_clients = Path(path).name.startswith("clients-")
    if client is not None and not of_clients:
        raise UserError(f"{path} holds a global model. Leave client out, or name a file clients-<seed>.safetensors.")
    if client is None and of_clients:
        raise UserError(f"{path} holds the models of several clients. Say which one, such as client=0.")
    from trainables import zoo

    return zoo.load_model(path) if client is None else zoo.load_client_model(path, client)
