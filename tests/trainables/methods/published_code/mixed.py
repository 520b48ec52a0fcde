"""What HtFLlib's methods have in common, as plain loops: clients of two architectures and plain SGD.

Losses are PyTorch's own, with the reductions that HtFLlib asks for. A batch is what the client of the method drew, as
HtFLlib's loader may give any: one pass, without the last incomplete batch.

A named difference that no setting switches off is shown twice: with the method's own step in the loop the two agree,
and with HtFLlib's step in its place they do not (`agrees_but_for`). So a sentence in a docstring is true, and needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from tests.trainables.methods.replays.actual import Round, World, world
from tests.trainables.methods.replays.networks import head
from tests.trainables.methods.replays.plain import Params, drawn_batches, gradients, watched
from tests.trainables.methods.replays.test_replay_dhf import features
from tests.trainables.methods.replays.test_replay_prototypes import MIXED, everything

#: HtFLlib's optimiser is SGD without momentum and decay.
PLAIN: dict[str, Any] = {**MIXED, "momentum": 0.0, "weight_decay": 0.0}
#: Everybody takes part; see `test_replay_prototypes.COHORTS` for rounds in which some do not.
EVERYBODY = (0, 1, 2, 3)
Rows = dict[int, Tensor]
#: What a client minimises: `(its parameters, features (B, p), logits (B, C), labels)`.
ClientLoss = Callable[[Params, Tensor, Tensor, Tensor], Tensor]


class Step(NamedTuple):
    """What a client's model said of a batch, before the step on it."""

    features: Tensor
    logits: Tensor
    y: Tensor


def htfllib(name: str, toy: Path, /, **values: Any) -> World:
    """The method `name` on clients of two architectures, with HtFLlib's optimiser."""
    return world(name, toy, **PLAIN | values)


def agrees_but_for(theirs: str | None, named: Mapping[str, str]) -> AbstractContextManager[Any]:
    """Within, a replay agrees; with the published step `theirs` instead of the method's it does not, where the message
    `named[theirs]` says."""
    return nullcontext() if theirs is None else pytest.raises(AssertionError, match=named[theirs])


def batches(played: World, round_: Round, i: int) -> list[Tensor]:
    """The places of a client's batches of one round."""
    c, data = played.config, played.clients[i]
    batch = min(c.batch_size, len(data.y))
    return drawn_batches(data, len(data.y) // batch, batch, played.client_rng(round_.number, i).torch("batches"))


def trained(
    played: World, round_: Round, i: int, start: Params, loss_of: ClientLoss, lr: float | None = None
) -> tuple[Params, list[Step]]:
    """A client's model after its batches, and what it said on the way."""
    model, steps = dict(start), []
    for chosen in batches(played, round_, i):
        x, y = played.clients[i].batch(chosen)
        here = watched(model)
        rows = features(here, x)
        logits = head(here, rows)
        steps.append(Step(rows.detach(), logits.detach(), y))
        model = moved(model, gradients(loss_of(here, rows, logits, y), here), lr or played.config.lr)
    return model, steps


def moved(params: Params, found: Mapping[str, Tensor], lr: float) -> Params:
    """`w - η g`."""
    return {name: value - lr * found[name] if name in found else value for name, value in params.items()}


def class_means(rows: Tensor, y: Tensor) -> Rows:
    """The mean of the rows of every label there is."""
    return {int(j): rows[y == j].mean(dim=0) for j in y.unique()}


def along(steps: Sequence[Step], what: str) -> Rows:
    """Class means of what the model said while it changed, as HtFLlib's FD and FedProto report it."""
    return class_means(torch.cat([getattr(s, what) for s in steps]), torch.cat([s.y for s in steps]))


def afterwards(played: World, i: int, model: Params, what: str, chosen: Sequence[Tensor] = ()) -> Rows:
    """Class means of what one model says, of the client's samples in `chosen`, else of all."""
    data = played.clients[i]
    x, y = data.batch(torch.cat(list(chosen))) if chosen else (everything(played, i), data.y)
    rows = features(model, x)
    return class_means(rows if what == "features" else head(model, rows), y)


def replaced(rows: Tensor, y: Tensor, known: Mapping[int, Tensor]) -> Tensor:
    """A constant copy of the rows in which that of a label with something known is what is known of it."""
    return torch.stack([known.get(int(label), row) for row, label in zip(rows.detach(), y, strict=True)])


def owners_mean(reports: Sequence[Rows]) -> Rows:
    """For every class, the plain mean over the clients that report it."""
    classes = sorted({j for report in reports for j in report})
    return {j: torch.stack([report[j] for report in reports if j in report]).mean(dim=0) for j in classes}
