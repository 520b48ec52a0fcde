"""What PFLlib's clients and servers have in common (TsingZ0/PFLlib, `system/flcore`), and our side with its settings.

clients/clientbase.py (004a405d)  plain SGD; a pass is a shuffle in whole batches, what fills none is left out
servers/serverbase.py (2b077c16)  the average starts from zeros and adds every upload times its share of samples
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tests.trainables.methods.replays.actual import Round, World, world
from tests.trainables.methods.replays.plain import Loss, Params, drawn_batches, gradients, watched
from tests.trainables.methods.replays.test_replay_averages import plain_loss
from trainables.rng import Rng
from trainables.simulation import executors

Batch = tuple[Tensor, Tensor]


def published(name: str, data: Path, /, **values: Any) -> World:
    """The method with what PFLlib has: no momentum, no weight decay, passes over the data instead of steps."""
    return world(name, data, **({"momentum": 0.0, "weight_decay": 0.0, "local_epochs": 1} | values))


def loader(of: World, number: int, i: int, passes: int | None = None) -> list[Batch]:
    """The batches of a client's training in a round, or of so many passes."""
    return _batches(of, of.client_rng(number, i), i, of.config.local_epochs if passes is None else passes)


def _batches(of: World, rng: Rng, i: int, passes: int) -> list[Batch]:
    data, batch = of.clients[i], of.config.batch_size
    assert len(data.y) >= batch, "a client with fewer samples than a batch trains nothing in PFLlib"
    drawn = drawn_batches(data, passes * (len(data.y) // batch), batch, rng.torch("batches"))
    return [data.batch(chosen) for chosen in drawn]


def fine_tuned(of: World, played: Round, passes: int) -> dict[int, tuple[Params, list[Batch]]]:
    """By client: the model that is measured after a round, and the batches of the fine-tuning; `passes` 0: one
    batch."""
    found = executors.fine_tuned(
        of.method, of.config, of.fed, played.number, played.after, {}, [of.clients[i] for i in played.results], "loop"
    )
    assert found is not None
    return {
        i: (model, batches if passes else batches[:1])
        for i, model in found.items()
        for batches in [_batches(of, of.fed.rng.child("round", played.number, "personal", i), i, max(1, passes))]
    }


def descended(
    start: Params,
    batches: list[Batch],
    lr: float,
    loss_of: Loss = plain_loss,
    step: Callable[[Params, Params], Params] = lambda w, g: g,
) -> Params:
    """A client's steps from `start`; `step(w, gradient)` is what the optimiser multiplies by the rate. Parameters that
    the loss does not reach stay."""
    w = dict(start)
    for x, y in batches:
        here = watched(w)
        direction = step(w, gradients(loss_of(here, x, y), here))
        w |= {name: w[name] - lr * direction[name] for name in direction}
    return w


def aggregated(of: World, uploads: Mapping[int, Params]) -> Params:
    """The server's average of what these clients sent."""
    total = sum(len(of.clients[i].y) for i in uploads)
    average = {name: torch.zeros_like(value) for name, value in next(iter(uploads.values())).items()}
    for i, model in uploads.items():
        for name, value in model.items():
            average[name] = average[name] + value * (len(of.clients[i].y) / total)
    return average
