"""Clients' own models as files: by seed the weights of all clients in one safetensors file, beside it their cards.

    model, card = load("runs/own/trials/0000/clients-1000000000.safetensors", client=3)

`trainables.zoo.save_clients` writes them. Tensors are named `<client>/<name>`. A card is that of a global model
(`trainables.zoo.Card`); its details also have the `client`, the `round` in which its model was last measured, the
`rate` that its architecture is cut to, and `network`: `model`, or `around` where what predicts is a module around one
(`Method.around`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import nn

from search_spaces import files
from search_spaces.errors import UserError, short
from trainables import models, registry
from trainables.federation import Federation
from trainables.method import Method
from trainables.models import Model
from trainables.zoo import CLIENTS_VERSION, Card, check_version, check_weights, unreadable


def card_of(method: Method, fed: Federation, network: nn.Module, details: Mapping[str, object]) -> Card:
    """The card of a model whose module is `network`."""
    inner = next((part for part in network.modules() if isinstance(part, Model)), fed.network())
    kind = "model" if isinstance(network, Model) else "around"
    own = {"method": method.name, "network": kind, "rate": inner.rate}
    return Card(inner.name, fed.shape, fed.classes, fed.mean, fed.std, {**details, **own}, fed.batch_norm)


def load(path: str | Path, client: int) -> tuple[nn.Module, Card]:
    """The network of a client in evaluation mode with its weights, and its card; the other clients' weights are not
    read. Raises `UserError` where a file is missing or unreadable, or has no model of that client."""
    path = Path(path)
    try:
        content = _content(path, client)
        card = Card.from_json(content)
        model = _module(card)
        os.close(files.open_plain(path))
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


def _content(path: Path, client: int) -> Mapping[str, Any]:
    """What the card of that client holds. Raises `UserError` where there is none."""
    note = path.with_suffix(".json")
    content = json.loads(files.read_text(note))
    check_version(note, content["version"], CLIENTS_VERSION)
    cards = content["clients"]
    if str(client) not in cards:
        raise UserError(f"{path} holds no model of client {client}. It has those of {short(', '.join(cards))}.")
    found: Mapping[str, Any] = cards[str(client)]
    return found


def _module(card: Card) -> nn.Module:
    """The module that predicts, with weights to be replaced."""
    rate = float(card.details["rate"])
    model = models.build(card.model, card.shape, card.classes, rate, batch_norm=card.batch_norm)
    if card.details["network"] == "model":
        return model
    around = registry.method(str(card.details["method"])).around
    if around is None:
        raise UserError(
            f"The models of clients of {card.details['method']} are modules of its own, and the method does not say "
            f"how they are made (`Method.around`). Read the weights with safetensors."
        )
    return around(model)
