"""What a server learns from the round's prototypes: passes over (prototype, class) pairs in random order.

Each prototype counts once, whatever the number of samples it is the mean of. Orders are drawn before the first step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from search_spaces.parameter import integer, real
from trainables.building_blocks.prototypes import by_class
from trainables.federation import Federation
from trainables.rng import Rng


@dataclass(frozen=True)
class PrototypePasses:
    """Rate and length of the server's SGD."""

    server_lr: float = real(
        0.01,
        low=1e-6,
        high=10.0,
        log=True,
        symbol="η_s",
        doc="Learning rate of the server's SGD.",
        source="HtFLlib",
        tune=(1e-4, 0.1),
    )
    server_epochs: int = integer(
        100,
        low=0,
        high=1000,
        symbol="E_s",
        doc="Passes of the server over the round's prototypes.",
        source="HtFLlib",
        tune=(10, 1000),
    )
    server_batch_size: int = integer(
        10, low=1, high=4096, log=True, symbol="B_s", doc="Prototypes per step of the server.", source="HtFLlib"
    )


def labelled(payloads: Sequence[Mapping[str, Tensor]], fed: Federation) -> tuple[Tensor, Tensor]:
    """All prototypes of the round's uploads `(n, p)` and their classes `(n,)`, client by client."""
    reports = [by_class("prototype", payload) for payload in payloads]
    rows = [prototype for report in reports for prototype in report.values()]
    return torch.stack(rows), torch.tensor([j for report in reports for j in report]).to(fed.device)


def passes(config: PrototypePasses, samples: int, fed: Federation, rng: Rng) -> Iterator[Tensor]:
    """Places `(batch,)` of the prototypes of one step after the other; the last batch of a pass may be smaller."""
    generator = rng.torch("prototypes")
    orders = [torch.randperm(samples, generator=generator) for _ in range(config.server_epochs)]
    for order in torch.stack(orders).to(fed.device) if orders else ():
        yield from order.split(config.server_batch_size)
