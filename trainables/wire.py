"""What crosses the wire in a round, and what a client hands back: named tensors, so that bytes are counted exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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


class OnePass(Sequence[Upload]):
    """The uploads of a round for a server that goes over them once (`Method.one_pass`): each is made when it is asked
    for, and nobody keeps it. How many there are is known before, and so is what `ahead` returns."""

    def __init__(self, count: int, uploads: Iterator[Upload], ahead: Callable[[], Sequence[Upload]]) -> None:
        """ahead: gives of every upload what its client knows before it trains; asked before the first upload is."""
        self._count, self._uploads, self._asked = count, uploads, False
        self._ahead = ahead

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Upload]:
        """Raises `TypeError` where they were gone over before."""
        if self._asked:
            raise TypeError("The server goes over the uploads a second time, and its method says `one_pass`.")
        self._asked = True
        return self._uploads

    def __getitem__(self, place: object) -> Any:
        """Raises `TypeError`: there is no upload before or after that which is at hand."""
        raise TypeError("The server asks for one of the uploads by its place, and its method says `one_pass`.")

    def ahead(self) -> Sequence[Upload]:
        """See the function `ahead`. Raises `TypeError` once the uploads themselves were asked for."""
        if self._asked:
            raise TypeError("The server asks what clients knew before they trained after it has asked for the uploads.")
        return self._ahead()

    def exhaust(self) -> None:
        """Makes the uploads that the server has not asked for."""
        for _ in self._uploads:
            pass


def ahead(uploads: Sequence[Upload]) -> Sequence[Upload]:
    """Of every upload at least the part that its client knew before it trained (`trainables.local.LocalJob.ahead`), for
    a server that weighs each model by something of all clients. It asks before it goes over the uploads."""
    return uploads.ahead() if isinstance(uploads, OnePass) else uploads
