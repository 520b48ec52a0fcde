"""The only client training loop. A method supplies the objective; everything else is here.

Mini-batches are index tensors drawn before the first step: shuffles of the client's samples laid end to end and cut
into batches of equal size, so a client's work has a static shape and the same draws whatever the method.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from search_spaces.parameter import integer, real
from trainables.federation import ClientData
from trainables.rng import Rng

#: `(module, x (B, ch, H, W), y (B,)) -> scalar loss`
Objective = Callable[[nn.Module, Tensor, Tensor], Tensor]

#: Samples gathered and normalised at once; bounds memory without a copy per step.
_GATHER = 4096


@dataclass(frozen=True)
class LocalTraining:
    """What every client does each round. Methods extend this declaration and may give other defaults."""

    lr: float = real(0.01, low=1e-6, high=10.0, log=True, symbol="η", doc="Learning rate of the clients' SGD.", tune=(1e-3, 0.3))
    local_steps: int = integer(20, low=1, high=100_000, log=True, symbol="I_c", doc="SGD steps per client and round.", tune=(5, 100))
    local_epochs: int = integer(0, low=0, high=1000, symbol="E", doc="Passes over the client's data per round; 0 uses local_steps.")
    batch_size: int = integer(64, low=1, high=4096, log=True, symbol="B", doc="Mini-batch size (at most the client's samples).")
    momentum: float = real(0.0, low=0.0, high=0.999, doc="Momentum of the clients' SGD.")
    weight_decay: float = real(0.0, low=0.0, high=0.1, doc="Weight decay of the clients' SGD.")


@dataclass(frozen=True)
class LocalWork:
    """`loss`: mean over the steps. `drawn`: indices into the client's samples, `(steps, batch)`."""

    loss: float
    drawn: Tensor


def cross_entropy(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Mean cross-entropy of the module's logits."""
    return F.cross_entropy(module(x), y)


def draw_batches(config: LocalTraining, samples: int, work: float, rng: Rng) -> Tensor:
    """Indices `(steps, batch)` into a client's `samples`; `work` in (0, 1] is the share of the steps it manages."""
    batch = min(config.batch_size, samples)
    planned = config.local_epochs * max(1, samples // batch) if config.local_epochs else config.local_steps
    steps = max(1, round(work * planned))
    generator = rng.torch("batches")
    passes = -(-steps * batch // samples)
    order = torch.cat([torch.randperm(samples, generator=generator) for _ in range(passes)])
    return order[: steps * batch].view(steps, batch)


def train(config: LocalTraining, module: nn.Module, data: ClientData, rng: Rng, objective: Objective = cross_entropy) -> LocalWork:
    """Runs this client's SGD steps on `module`, in place, and says what was drawn.

    `module` holds the starting weights. A loss that stops being finite is returned as such, never raised."""
    drawn = draw_batches(config, len(data), data.work, rng)
    steps, batch = drawn.shape
    module.train()
    trainable = [p for p in module.parameters() if p.requires_grad]
    optimiser = torch.optim.SGD(trainable, lr=config.lr, momentum=config.momentum, weight_decay=config.weight_decay, fused=True)
    total = torch.zeros((), device=data.device)
    per_gather = max(1, _GATHER // batch)
    for first in range(0, steps, per_gather):
        chosen = drawn[first : first + per_gather]
        x, y = data.batch(chosen.flatten())
        for xb, yb in zip(x.split(batch), y.split(batch), strict=True):
            optimiser.zero_grad(set_to_none=True)
            loss = objective(module, xb, yb)
            loss.backward()
            optimiser.step()
            total += loss.detach()
    return LocalWork(float(total) / steps, drawn)
