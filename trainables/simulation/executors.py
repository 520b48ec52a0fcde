"""How a cohort's clients are trained: one after the other (`loop`), or all of equal shape as one program (`vmap`).

`loop` calls each client's own function. The others need a method whose clients are pure training jobs (`Method.job`).
With `vmap` jobs of one architecture, width, number of steps and batch size are stacked, their gradients come from one
vectorised program (`torch.func`), and one optimiser steps them all. SGD works entry by entry, so nothing passes from
client to client. They may belong to federations of other configurations: what these differ in are vectors, in the
optimiser (learning rate, momentum, weight decay) and in the objective (`trainables.simulation.objective_settings`).
`graph` is in `trainables.simulation.cuda_graphs`. Batches are those of the loop; results agree to rounding. The
server's steps are recorded on CUDA however its clients are trained, unless `loop` was asked for (`records_server`).

`auto` is `loop` on a CPU, where stacked convolutions become grouped ones, which cost 1.4 to 1.9 times as much as one
client after the other, and where the method's clients do more than one job. On CUDA it is `vmap` where the model is
small, so that one client's step leaves the GPU idle, and `graph` where it is not (`FILLS`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from search_spaces.errors import UserError, sentence
from trainables import models
from trainables.federation import ClientData, Federation, FederationConfig, gather
from trainables.local import (
    GATHER,
    LocalJob,
    LocalResult,
    LocalTraining,
    Objective,
    client_of,
    draw_batches,
    sgd_of_each,
)
from trainables.method import Method, stackable
from trainables.models import precision
from trainables.rng import Rng
from trainables.simulation.objective_settings import Differs, United, architecture, likeness
from trainables.wire import ClientResult, Params

Nested = TypeVar("Nested")
#: The layout of all that is stacked. Where maps have their channels last, normalisation asks for them so, which vmap
#: cannot give (on a GPU, and with PyTorch 2.11 on a processor). It takes a copy: a dimension of one hides the layout.
PLAIN = torch.contiguous_format
#: Floating-point operations of a model's forward pass over a batch, from which recorded steps are faster than stacked
#: ones. Measured on an H100 with four trials at once, as a search packs them; see "On a GPU" in docs/performance.md. It
#: is no measurement of the GPU at hand, so that the same configuration has the same bits wherever it is resumed.
FILLS = 2e9
#: Types of devices that record steps.
RECORDING = ("cuda",)


@dataclass(frozen=True)
class Task:
    """A client's job and what it is done with. Tasks may belong to several federations, of several configurations."""

    config: LocalTraining
    job: LocalJob
    data: ClientData
    rng: Rng


def check(executor: str, device: torch.device) -> None:
    """Raises `UserError` where the device cannot train clients that way."""
    if executor == "graph" and device.type not in RECORDING:
        raise UserError(
            sentence(
                "executor",
                "auto, loop or vmap on a processor, which has no CUDA graphs",
                executor,
                fix="Use --set executor=auto.",
            )
        )


def chosen(settings: FederationConfig, method: Method, config: Any, fed: Federation) -> str:
    """The executor that `auto` means for this federation on its device; every other name means itself."""
    if settings.executor != "auto":
        return settings.executor
    if fed.device.type != "cuda" or not stackable(method, config) or models.is_own(fed.model):
        return "loop"
    return "graph" if _largest(settings, method, config, fed)[0] >= FILLS else "vmap"


def records_server(settings: FederationConfig, method: Method, fed: Federation) -> bool:
    """Whether the steps of the method's server are recorded, which leaves the bits of each step. A model of a user's
    own is not known to be one whose steps can be."""
    able = method.recordable_server and fed.device.type in RECORDING and not models.is_own(fed.model)
    return able and settings.executor != "loop"


def arithmetic(settings: FederationConfig, method: Method, config: Any, fed: Federation) -> str:
    """The precision that `auto` means for this federation on its device; every other name means itself."""
    if settings.precision != "auto":
        return settings.precision
    if fed.device.type == "cpu" or models.is_own(fed.model) or models.reads_tokens(fed.model):
        return "fp32"
    size, model = _largest(settings, method, config, fed)
    convolutions = any(isinstance(layer, nn.Conv2d) for layer in model.modules())
    return precision.chosen(fed.device, convolutions=convolutions, fills=size >= FILLS)


def _largest(settings: FederationConfig, method: Method, config: Any, fed: Federation) -> tuple[int, nn.Module]:
    """The model with the largest step of those that clients train: its operations in a forward pass over a batch, and
    the model without its weights."""
    names = {fed.model if name == "auto" else name for name in method.architectures(config, settings)}
    built = [fed.built(name) for name in sorted(names)]
    return max(((operations(model, fed.shape, config.batch_size), model) for model in built), key=lambda one: one[0])


def operations(model: nn.Module, shape: tuple[int, ...], batch: int) -> int:
    """Floating-point operations of the model's forward pass over `batch` images of `shape` (channels, height, width),
    two for every product. The model loses its weights."""
    from torch.utils.flop_counter import FlopCounterMode  # which a federation on a CPU does without

    # Of two images: PyTorch may compute one, or very many, by other means, with products that count for nothing.
    with FlopCounterMode(display=False) as counted:
        model.to("meta")(torch.zeros(2, *shape, device="meta"))
    return int(counted.get_total_flops()) * batch // 2


def train_stacked(tasks: Sequence[Task]) -> list[ClientResult]:
    """Every task's result, in order; tasks of equal shape are trained as one program."""
    drawn = [draw_batches(t.config, len(t.data), t.data.step_share, t.rng) for t in tasks]
    groups: dict[object, list[int]] = {}
    for place, (task, batches) in enumerate(zip(tasks, drawn, strict=True)):
        groups.setdefault((tuple(batches.shape), *_likeness(task)), []).append(place)
    trained: dict[int, tuple[Params, LocalResult]] = {}
    waiting = list(groups.values())
    while waiting:
        places = waiting.pop(0)
        try:
            found = _train_group([tasks[p] for p in places], torch.stack([drawn[p] for p in places]))
        except Differs as error:  # before the first step
            parts: dict[object, list[int]] = {}
            for place, answer in zip(places, error.answers, strict=True):
                parts.setdefault(answer, []).append(place)
            waiting += parts.values()
        else:
            trained |= zip(places, found, strict=True)
    return [task.job.finish(*trained[place]) for place, task in enumerate(tasks)]


def _likeness(task: Task) -> tuple[object, ...]:
    """Equal for tasks that can be one program where their batches are of one shape."""
    of = task.job
    return task.data.images.content, likeness(of.objective, task.config), shapes(of.given), *architecture(of.module)


def _train_group(tasks: Sequence[Task], drawn: Tensor) -> list[tuple[Params, LocalResult]]:
    """Trains K tasks that can be one program on the samples `drawn` `(K, steps, batch)`. Raises `Differs` where their
    settings say that they are several."""
    clients, steps, batch = drawn.shape
    first = tasks[0].job
    module = first.module.train()
    united = United([t.job.objective for t in tasks])
    held = _Held(module, united)
    every = stack([{name: t.job.start[name] for name in first.start} for t in tasks])
    trainable = {name for name, p in module.named_parameters() if p.requires_grad}
    weights = {name: tensor for name, tensor in every.items() if name in trainable}
    fixed = {name: tensor for name, tensor in every.items() if name not in trainable}

    def loss_of(
        weights: Params, fixed: Params, numbers: tuple[Tensor, ...], given: tuple[Any, ...], x: Tensor, y: Tensor
    ) -> Tensor:
        loss: Tensor = functional_call(
            held, {f"module.{name}": tensor for name, tensor in (weights | fixed).items()}, (numbers, given, x, y)
        )
        return loss

    step = vmap(grad_and_value(loss_of))
    given = stack([t.job.given for t in tasks])
    numbers = united.numbers(next(iter(weights.values())))
    optimiser = sgd_of_each([t.config for t in tasks], list(weights.values()))
    total = torch.zeros(clients, device=tasks[0].data.device)
    per_gather = max(1, GATHER // (clients * batch))
    for start in range(0, steps, per_gather):
        x, y = gather([t.data for t in tasks], drawn[:, start : start + per_gather].flatten(1))
        for xb, yb in zip(x.split(batch, dim=1), y.split(batch, dim=1), strict=True):
            gradients, losses = step(weights, fixed, numbers, given, xb, yb)
            for name, tensor in weights.items():
                # The fused optimiser needs weights and gradients of one memory layout. `backward` gives that, `grad`
                # does not.
                same_layout = gradients[name].stride() == tensor.stride()
                tensor.grad = gradients[name] if same_layout else torch.empty_like(tensor).copy_(gradients[name])
            optimiser.step()
            total += losses
    # A slice would share its memory with the other clients' weights: each client gets tensors of its own.
    return [
        ({name: tensor[k].clone() for name, tensor in every.items()}, LocalResult(loss / steps, drawn[k]))
        for k, loss in enumerate(total.tolist())
    ]


def fine_tuned(
    method: Method,
    config: Any,
    fed: Federation,
    round_: int,
    state: Any,
    client_states: Mapping[int, Any],
    clients: Sequence[ClientData],
    executor: str,
) -> dict[int, Params] | None:
    """By client the model that it fine-tunes for a measurement (`Method.personal`), of which local accuracy is measured
    after round `round_`; None where that is the model the client has trained.

    They are trained where the cohort's models are: one after the other, or with `vmap` as one program. A client's
    batches come from a stream of its own that names the round, so they depend neither on the executor nor on what was
    measured before. `state` and `client_states` are those after the round. Slow clients are not hurried here: they do
    all steps."""
    own = method.personal
    training = own.training(config) if own is not None else None
    if own is None or training is None:
        return None
    calls = [
        (
            training,
            fed,
            method.download(config, fed, state, data.client),
            client_states.get(data.client),
            data,
            fed.rng.child("round", round_, "personal", data.client),
        )
        for data in clients
    ]
    if executor == "vmap":
        jobs = [own.job(*call) for call in calls]
        tasks = [Task(training, job, job.data or call[4], call[5]) for job, call in zip(jobs, calls, strict=True)]
        results = train_stacked(tasks)
    else:
        train = client_of(own.job)
        results = [train(*call) for call in calls]
    return {
        data.client: result.model for data, result in zip(clients, results, strict=True) if result.model is not None
    }


class _Held(nn.Module):
    """The jobs' objective as a module around their network, so that `functional_call` can put weights in its place."""

    def __init__(self, module: nn.Module, united: United) -> None:
        super().__init__()
        self.module, self.united = module, united

    def forward(self, numbers: tuple[Tensor, ...], given: tuple[Any, ...], x: Tensor, y: Tensor) -> Tensor:
        objective: Objective = self.united.of(numbers)(*given)
        return objective(self.module, x, y)


def stack(values: Sequence[Nested]) -> Nested:
    """Equally built values (tensors, or tuples, lists and dictionaries of them) as one whose tensors have a first
    dimension more."""
    first: Any = values[0]
    many: Any = values
    stacked: Any
    if isinstance(first, Tensor):
        stacked = torch.stack(many).clone(memory_format=PLAIN)
    elif isinstance(first, dict):
        stacked = {key: stack([value[key] for value in many]) for key in first}
    else:
        stacked = type(first)(stack(list(parts)) for parts in zip(*many, strict=True))
    return cast(Nested, stacked)


def shapes(value: Any) -> object:
    """Equal for values that can be stacked: built equally, of tensors of equal shapes."""
    if isinstance(value, Tensor):
        return value.shape
    if isinstance(value, dict):
        return tuple((key, shapes(item)) for key, item in value.items())
    return tuple(shapes(item) for item in value)
