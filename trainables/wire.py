"""What crosses the wire in a round, and what a client hands back: named tensors, so that bytes are counted exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

Params = dict[str, Tensor]
Payload = dict[str, Tensor]


@dataclass(frozen=True)
class ClientResult:
    """What one client hands back after its part in a round.

    `upload` crosses the wire. `client_state` stays on the client until its next round (None: nothing).
    `model` is the complete local model after training, read only to measure local accuracy (None: there is none).
    `others` are further complete models of the client by name (`Method.other_networks`), measured beside it.
    `loss` is the mean training loss over the round's steps, None where nothing was trained.
    `metrics` are further numbers of the client's round by name (declared in `search_spaces.metrics`); the record holds
    their mean weighted by client size."""

    upload: Payload
    client_state: Any = None
    model: Params | None = None
    others: Mapping[str, Params] = field(default_factory=dict)
    loss: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Upload:
    """One client's upload as the server receives it, with the client's number."""

    client: int
    payload: Payload
