"""Clients one after the other, their SGD step recorded once as a CUDA graph and replayed (`executor: graph`).

See `trainables.kernels.recorded_steps`. What stays in its place here: weights and buffers (a federation's modules are
reused), the batch, the tensors of the objective, momentum, the sum of losses. A server's steps are recorded by the
methods that have such (`Method.recordable_server`), whatever trains the clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from trainables.kernels.recorded_steps import Recorder, cuda_graph
from trainables.local import LocalJob, LocalResult, LocalTraining, batches, draw_batches, sgd
from trainables.params import put, take
from trainables.simulation.executors import Task, shapes
from trainables.wire import ClientResult

#: Recorded steps kept; one more takes the place of the oldest. Each holds on to the memory of its activations.
KEPT = 16


class Graphs:
    """The recorded steps of one federation."""

    def __init__(self, config: LocalTraining, record: Recorder = cuda_graph) -> None:
        self._config, self._record = config, record
        self._programs: dict[object, _Program] = {}

    def train(self, task: Task) -> ClientResult:
        """The result of the task's client, to rounding what the loop gives."""
        drawn = draw_batches(self._config, len(task.data), task.data.step_share, task.rng)
        job = task.job
        key = (id(job.module), drawn.shape[1], _identity(job.objective), shapes(job.given))
        if key not in self._programs:
            x, y = next(batches(task.data, drawn[:1]))
            if len(self._programs) == KEPT:
                del self._programs[next(iter(self._programs))]
            self._programs[key] = _Program(self._config, job, x, y, self._record)
        trained = self._programs[key].run(job, task, drawn)
        return job.finish(take(job.module), trained)


class _Program:
    """One recorded step with the tensors it works on. It keeps the job it was made of, so that Python gives its `id` to
    no other job."""

    def __init__(self, config: LocalTraining, job: LocalJob, x: Tensor, y: Tensor, record: Recorder) -> None:
        self._job, self._module = job, job.module
        self._x, self._y, self._given = x.clone(), y.clone(), _own(job.given)
        self._optimiser = sgd(config, [p for p in job.module.parameters() if p.requires_grad])
        self._total = torch.zeros((), device=x.device)
        put(job.module, job.start)
        job.module.train()
        self._replay = record(self._step)

    def _step(self) -> None:
        self._optimiser.zero_grad(set_to_none=True)
        objective = self._job.objective(*self._given)  # here, as it may compute something from what is given
        loss = objective(self._module, self._x, self._y)
        loss.backward()
        self._optimiser.step()
        self._total += loss.detach()

    def run(self, job: LocalJob, task: Task, drawn: Tensor) -> LocalResult:
        """Trains the module from `job.start` on the samples `drawn` `(steps, batch)`."""
        put(self._module, job.start)
        self._module.train()
        for mine, theirs in zip(_tensors(self._given), _tensors(job.given), strict=True):
            mine.copy_(theirs)
        for state in self._optimiser.state.values():
            if state.get("momentum_buffer") is not None:
                state["momentum_buffer"].zero_()
        self._total.zero_()
        for x, y in batches(task.data, drawn):
            self._x.copy_(x)
            self._y.copy_(y)
            self._replay()
        return LocalResult(float(self._total) / len(drawn), drawn)


def _own(value: Any) -> Any:
    """The same nest with tensors of its own: one that stands in it twice becomes two, as the next job's may differ."""
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {key: _own(item) for key, item in value.items()}
    return type(value)(_own(item) for item in value)


def _tensors(value: Any) -> Iterator[Tensor]:
    """The tensors of a nest of tuples, lists and dictionaries, in order."""
    if isinstance(value, Tensor):
        yield value
    else:
        for item in value.values() if isinstance(value, dict) else value:
            yield from _tensors(item)


def _identity(objective: Callable[..., Any]) -> object:
    """Equal for objectives that are the same function of the same objects, even if every client binds them again."""
    if isinstance(objective, partial):
        return (
            objective.func,
            tuple(map(id, objective.args)),
            tuple((name, id(value)) for name, value in objective.keywords.items()),
        )
    return objective
