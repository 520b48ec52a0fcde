"""PyTorch's SGD, Adam and LBFGS, to the same bits, without loading PyTorch's compiler.

An optimiser of PyTorch loads the compiler (`torch._dynamo`) at its first use, only to tell it that the optimiser is not
to be compiled. That takes about 150 MiB and a second or more in every process, though nothing here is compiled. The
classes here inherit everything and put the undecorated functions of PyTorch in place of the decorated ones that load
it.

`torch.optim.SGD`, `Adam` and `LBFGS` themselves are the reference that a test compares with. They are left as they are.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class _WithoutCompiler(torch.optim.Optimizer):
    add_param_group: Any = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad: Any = inspect.unwrap(torch.optim.Optimizer.zero_grad)


class SGD(_WithoutCompiler, torch.optim.SGD):
    """`torch.optim.SGD`, not differentiable."""

    step: Any = torch.no_grad()(inspect.unwrap(torch.optim.SGD.step))


class SGDOfEach(_WithoutCompiler):
    """SGD of K models whose parameters are stacked, `(K, ...)`: to rounding K times `SGD`, each with its own learning
    rate, momentum and weight decay. Like that it has no dampening, and no Nesterov momentum."""

    def __init__(
        self,
        params: Sequence[Tensor],
        lr: Sequence[float],
        momentum: Sequence[float],
        weight_decay: Sequence[float],
    ) -> None:
        super().__init__(params, {})
        self._has_momentum, self._decays = any(momentum), any(weight_decay)
        self._vectors = params[0].new_tensor([lr, momentum, weight_decay])

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One step along the gradients that every parameter has."""
        for p in self.param_groups[0]["params"]:
            lr, momentum, decay = self._vectors.view(3, -1, *[1] * (p.dim() - 1))
            d = torch.addcmul(p.grad, p, decay) if self._decays else p.grad
            if self._has_momentum:
                state = self.state[p]
                before = state.get("momentum_buffer")
                d = state["momentum_buffer"] = d.clone() if before is None else before.mul_(momentum).add_(d)
            p.addcmul_(d, lr, value=-1)


class Adam(_WithoutCompiler, torch.optim.Adam):
    """`torch.optim.Adam`, not differentiable."""

    step: Any = torch.no_grad()(inspect.unwrap(torch.optim.Adam.step))
    #: No warning where an optimiser that can be recorded takes a step that is not: each takes its first one so.
    _warned_capturable_if_run_uncaptured = True


class LBFGS(_WithoutCompiler, torch.optim.LBFGS):
    """`torch.optim.LBFGS`, whose step loads nothing."""

    step: Any = torch.optim.LBFGS.step
