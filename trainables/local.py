"""The only client training loop. A method supplies the objective; everything else is here.

A method whose clients do no more than train says so by describing that as a `LocalJob`: its client is then
`client_of(job)`, and a cohort of such jobs can be trained as one program (`trainables.simulation.executors`).

Mini-batches are index tensors drawn before the first step: shuffles of the client's samples laid end to end and cut
into batches of equal size, so a client's training has a static shape and the same draws whatever the method.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from search_spaces.parameter import integer, real
from trainables.federation import ClientData, Federation
from trainables.kernels.optimisers import SGD, SGDOfEach
from trainables.params import put, take
from trainables.rng import Rng
from trainables.wire import ClientResult, Params, Payload

#: `(module, x (B, ch, H, W), y (B,)) -> scalar loss`
Objective = Callable[[nn.Module, Tensor, Tensor], Tensor]

#: Samples gathered and normalised at once; bounds memory without a copy per step.
GATHER = 4096


@dataclass(frozen=True)
class LocalTraining:
    """What every client does each round. Methods extend this declaration and may give other defaults."""

    lr: float = real(
        0.01, low=1e-6, high=10.0, log=True, symbol="η", doc="Learning rate of the clients' SGD.", tune=(1e-3, 0.3)
    )
    local_steps: int = integer(
        20, low=1, high=100_000, log=True, symbol="I_c", doc="SGD steps per client and round.", tune=(5, 100)
    )
    local_epochs: int = integer(
        0, low=0, high=1000, symbol="E", doc="Passes over the client's data per round; 0 uses local_steps."
    )
    batch_size: int = integer(
        64, low=1, high=4096, log=True, symbol="B", doc="Mini-batch size (at most the client's samples)."
    )
    momentum: float = real(0.0, low=0.0, high=0.999, doc="Momentum of the clients' SGD.")
    weight_decay: float = real(0.0, low=0.0, high=0.1, doc="Weight decay of the clients' SGD.")

    @property
    def passes_per_sample(self) -> int:
        """What a sample of a step costs in forward passes of the client's model: one, and two backward, to the weights
        and to what comes before them."""
        return 3


@dataclass(frozen=True)
class LocalResult:
    """`loss`: mean over the steps. `drawn`: indices into the client's samples, `(steps, batch)`."""

    loss: float
    drawn: Tensor


def plain() -> Objective:
    """The objective of plain local training."""
    return cross_entropy


@dataclass(frozen=True)
class LocalJob:
    """One client's local training as a value: what it starts from, what it minimises, what is made of the result.

    module: where it is trained; jobs of one round may share it.
    start: the first weights, of all of the module's parameters and buffers.
    finish: makes the client's result of the trained weights and the `LocalResult`; it may use `module`, but not the
    weights that are in it. objective, given: what is minimised is `objective(*given)`, built of tensors (or tuples,
    lists and dictionaries of tensors) that are this client's. The objective has no side effects and does not branch on
    values of tensors; between the jobs of one round only `given` differs. A function that is bound to settings
    (`functools.partial`) can be one program with the objectives of other configurations."""

    module: nn.Module
    start: Params
    finish: Callable[[Params, LocalResult], ClientResult]
    objective: Callable[..., Objective] = plain
    given: tuple[Any, ...] = ()
    #: What is trained on, where the client keeps some of its samples for something else; None: all of them.
    data: ClientData | None = None
    #: The entries of the upload that the client knows before it trains, where the server needs those of all clients
    #: before the first model (`trainables.wire.ahead`); `finish` puts the same into the upload.
    ahead: Payload = field(default_factory=dict)


#: `(config, fed, payload, client_state, data, rng) -> LocalJob`, with the arguments of a method's `client`.
JobOf = Callable[[Any, Federation, Payload, Any, ClientData, Rng], LocalJob]


def client_of(job: JobOf) -> Callable[[Any, Federation, Payload, Any, ClientData, Rng], ClientResult]:
    """The `client` of a method that trains this job and does no more, one client after the other."""

    def client(
        config: Any, fed: Federation, payload: Payload, client_state: Any, data: ClientData, rng: Rng
    ) -> ClientResult:
        return trained(config, job(config, fed, payload, client_state, data, rng), data, rng)

    return client


def trained(config: LocalTraining, job: LocalJob, data: ClientData, rng: Rng) -> ClientResult:
    """What the client with these data hands back that trains this job and does no more."""
    put(job.module, job.start)
    result = train(config, job.module, job.data or data, rng, job.objective(*job.given))
    return job.finish(take(job.module), result)


def sgd(config: LocalTraining, parameters: Sequence[Tensor]) -> torch.optim.Optimizer:
    """The clients' optimiser over these parameters."""
    return SGD(parameters, lr=config.lr, momentum=config.momentum, weight_decay=config.weight_decay, fused=True)


def sgd_of_each(configs: Sequence[LocalTraining], parameters: Sequence[Tensor]) -> torch.optim.Optimizer:
    """The optimiser of K clients over their stacked parameters, `(K, ...)` each."""
    settings = [(config.lr, config.momentum, config.weight_decay) for config in configs]
    if len(set(settings)) == 1:
        return sgd(configs[0], parameters)
    return SGDOfEach(parameters, *zip(*settings, strict=True))


def cross_entropy(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Mean cross-entropy of the module's logits."""
    return F.cross_entropy(module(x), y)


def count_steps(config: LocalTraining, samples: int, step_share: float) -> int:
    """The steps of a client's round: as of `draw_batches`, whose first dimension it is."""
    batch = min(config.batch_size, samples)
    planned = config.local_epochs * max(1, samples // batch) if config.local_epochs else config.local_steps
    return max(1, round(step_share * planned))


def draw_batches(config: LocalTraining, samples: int, step_share: float, rng: Rng) -> Tensor:
    """Indices `(steps, batch)` into a client's `samples`; `step_share` in (0, 1] is the share of the steps it
    manages."""
    batch, steps = min(config.batch_size, samples), count_steps(config, samples, step_share)
    generator = rng.torch("batches")
    passes = -(-steps * batch // samples)
    order = torch.cat([torch.randperm(samples, generator=generator) for _ in range(passes)])
    return order[: steps * batch].view(steps, batch)


def train(
    config: LocalTraining, module: nn.Module, data: ClientData, rng: Rng, objective: Objective = cross_entropy
) -> LocalResult:
    """Runs this client's SGD steps on `module`, in place, and says what was drawn.

    `module` holds the starting weights. A loss that stops being finite is returned as such, never raised."""
    drawn = draw_batches(config, len(data), data.step_share, rng)
    module.train()
    optimiser = sgd(config, [p for p in module.parameters() if p.requires_grad])
    total = torch.zeros((), device=data.device)
    for x, y in batches(data, drawn):
        optimiser.zero_grad(set_to_none=True)
        loss = objective(module, x, y)
        loss.backward()
        optimiser.step()
        total += loss.detach()
    return LocalResult(float(total) / len(drawn), drawn)


def batches(data: ClientData, drawn: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """The normalised batches `drawn` `(steps, batch)`, gathered many at a time: images `(batch, ch, H, W)` and labels
    `(batch,)`."""
    steps, batch = drawn.shape
    per_gather = max(1, GATHER // batch)
    for first in range(0, steps, per_gather):
        x, y = data.batch(drawn[first : first + per_gather].flatten())
        yield from zip(x.split(batch), y.split(batch), strict=True)
