"""Steps that are taken many times, recorded once as a CUDA graph and replayed.

A step of a small network is a hundred kernels of a few microseconds each, and a GPU waits longer for the processor to
launch them than it computes. A recorded step is launched as one. What it reads and writes must stay where it is, and
nothing in it may ask for a value or come from the processor: what is drawn is drawn outside, and copied in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

#: Turns a step without arguments into one that does the same to the same tensors; it may run the step while it does so.
Recorder = Callable[[Callable[[], None]], Callable[[], None]]
#: Runs of a step before it is recorded, in which libraries choose their kernels and an optimiser makes its memory.
WARM_UP = 3
#: Steps that are taken less often are not recorded: the first one is not, recording runs one `WARM_UP` times and once
#: more to follow it, and that must be no more than half of them.
FEWEST = 2 * (1 + WARM_UP + 1)


def cuda_graph(step: Callable[[], None]) -> Callable[[], None]:
    """`step` as a CUDA graph of the current device, which lasts as long as what is returned."""
    return _captured(step).replay


class CudaGraphs:
    """Records steps as CUDA graphs of the current device. They hold on to the memory of their activations until
    `release`: a step and what it belongs to may refer to each other, and such Python lets go of late."""

    def __init__(self) -> None:
        self._graphs: list[torch.cuda.CUDAGraph] = []

    def __call__(self, step: Callable[[], None]) -> Callable[[], None]:
        """`step` as a graph."""
        self._graphs.append(_captured(step))
        return self._graphs[-1].replay

    def release(self) -> None:
        """Gives back the memory of all that was recorded, which is not replayed any more."""
        for graph in self._graphs:
            graph.reset()
        self._graphs.clear()


def _captured(step: Callable[[], None]) -> torch.cuda.CUDAGraph:
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(WARM_UP):
            step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


def recorded(
    step: Callable[..., None], changed: Callable[[], Iterable[Tensor]], record: Recorder | None, times: int
) -> Callable[..., None]:
    """`step` as it is taken so many `times`: recorded where steps are and that pays, else itself. changed: as of
    `RecordedStep`."""
    return step if record is None or times < FEWEST else RecordedStep(step, changed, record)


class RecordedStep:
    """`step(*given)` as often as it is called, to the bits that the step itself leaves."""

    def __init__(self, step: Callable[..., None], changed: Callable[[], Iterable[Tensor]], record: Recorder) -> None:
        """`step` takes tensors, of the same shapes at every call. `changed` names every tensor that it changes and that
        outlives it, once it has been called."""
        self._step, self._changed, self._record = step, changed, record
        self._called = False
        self._given: tuple[Tensor, ...] = ()
        self._replay: Callable[[], None] | None = None

    def __call__(self, *given: Tensor) -> None:
        if not self._called:
            self._called = True  # not recorded: in its first step an optimiser makes its memory
            self._step(*given)
            return
        if self._replay is None:
            self._replay = self._recorded(given)
        for mine, theirs in zip(self._given, given, strict=True):
            assert mine.shape == theirs.shape
            mine.copy_(theirs)
        self._replay()

    @torch.no_grad()
    def _recorded(self, given: tuple[Tensor, ...]) -> Callable[[], None]:
        """The step on tensors of its own. What it did while it was recorded is undone."""
        self._given = tuple(tensor.clone() for tensor in given)
        before = [(tensor, tensor.clone()) for tensor in self._changed()]
        with torch.enable_grad():
            replay = self._record(lambda: self._step(*self._given))
        for tensor, value in before:
            tensor.copy_(value)
        return replay


def memory(*optimisers: torch.optim.Optimizer) -> list[Tensor]:
    """The tensors that these optimisers keep from step to step."""
    return [
        value
        for optimiser in optimisers
        for state in optimiser.state.values()
        for value in state.values()
        if isinstance(value, Tensor)
    ]
