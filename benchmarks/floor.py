"""The kernel floor of a round: every convolution and linear layer alone, forward and backward, at its best, and nothing
else.

"Best" is the smallest of many repetitions in the better of the two memory layouts. A FLOP count would be the wrong
yardstick: LeNet's first convolution has one input channel and is slow whatever is done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks import plain_models

REPETITIONS = 12


def best(run: Callable[[], object]) -> float:
    """Smallest seconds of a call."""
    run()
    found = []
    for _ in range(REPETITIONS):
        started = time.perf_counter()
        run()
        found.append(time.perf_counter() - started)
    return min(found)


def layer(module: nn.Module, x: Tensor, first: bool) -> tuple[float, float]:
    """Best seconds of forward and of backward of one layer on input `x`; the first layer needs no gradient of its
    input."""
    if isinstance(module, nn.Linear):
        y = module(x)
        g = torch.randn_like(y)
        forward = best(lambda: F.linear(x, module.weight, module.bias))
        backward = (
            best(lambda: g.t() @ x) + best(lambda: g.sum(0)) + (0.0 if first else best(lambda: g @ module.weight))
        )
        return forward, backward
    assert isinstance(module, nn.Conv2d)
    times = [_convolution(module, x, first, layout) for layout in (torch.contiguous_format, torch.channels_last)]
    return min(forward for forward, _ in times), min(backward for _, backward in times)


def _convolution(module: nn.Conv2d, x: Tensor, first: bool, layout: torch.memory_format) -> tuple[float, float]:
    x, w = x.contiguous(memory_format=layout), module.weight.detach().contiguous(memory_format=layout)
    b = None if module.bias is None else module.bias.detach()
    stride, padding, dilation = (list(map(int, v)) for v in (module.stride, module.padding, module.dilation))
    gradient = torch.randn_like(F.conv2d(x, w, b, stride, padding, dilation))
    sizes = None if b is None else [len(b)]
    mask = [not first, True, b is not None]
    forward = best(lambda: F.conv2d(x, w, b, stride, padding, dilation))
    return forward, best(
        lambda: torch.ops.aten.convolution_backward(
            gradient, x, w, sizes, stride, padding, dilation, False, [0, 0], 1, mask
        )
    )


class Floor:
    """Seconds that a FedAvg round with these values cannot go below with PyTorch's kernels."""

    def __init__(self, values: Mapping[str, Any], shape: tuple[int, int, int], clients: int, test: int) -> None:
        self.values, self.clients, self.test = values, clients, test
        self.module = plain_models.MODELS[values["model"]](shape[0])
        self.inputs: list[tuple[nn.Module, Tensor]] = []
        handles = [
            m.register_forward_hook(lambda m, x, _: self.inputs.append((m, x[0].detach())))
            for m in self.module.modules()
            if isinstance(m, nn.Conv2d | nn.Linear)
        ]
        with torch.no_grad():
            self.module(torch.randn(values["batch_size"], *shape))
        for handle in handles:
            handle.remove()

    def run(self) -> float:
        """Measures the kernels and returns the sum for a round: training steps of all clients, one evaluation of the
        global model."""
        forward = backward = 0.0
        with torch.no_grad():
            for place, (module, x) in enumerate(self.inputs):
                f, b = layer(module, x, place == 0)
                forward, backward = forward + f, backward + b
        steps = self.clients * self.values["local_steps"]
        return steps * (forward + backward) + forward * self.test / self.values["batch_size"]

    def describe(self) -> dict[str, Any]:
        return {}
