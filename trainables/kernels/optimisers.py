"""PyTorch's SGD, Adam and LBFGS, to the same bits, without loading PyTorch's compiler.

An optimiser of PyTorch loads the compiler (`torch._dynamo`) at its first use, only to tell it that the optimiser is not
to be compiled. That takes about 150 MiB and a second or more in every process, though nothing here is compiled. The
classes here inherit everything and put the undecorated functions of PyTorch in place of the decorated ones that load
it.

`torch.optim.SGD`, `Adam` and `LBFGS` themselves are the reference that a test compares with. They are left as they are.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch


class _WithoutCompiler(torch.optim.Optimizer):
    add_param_group: Any = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad: Any = inspect.unwrap(torch.optim.Optimizer.zero_grad)


class SGD(_WithoutCompiler, torch.optim.SGD):
    """`torch.optim.SGD`, not differentiable."""

    step: Any = torch.no_grad()(inspect.unwrap(torch.optim.SGD.step))


class Adam(_WithoutCompiler, torch.optim.Adam):
    """`torch.optim.Adam`, not differentiable."""

    step: Any = torch.no_grad()(inspect.unwrap(torch.optim.Adam.step))
    #: No warning where an optimiser that can be recorded takes a step that is not: each takes its first one so.
    _warned_capturable_if_run_uncaptured = True


class LBFGS(_WithoutCompiler, torch.optim.LBFGS):
    """`torch.optim.LBFGS`, whose step loads nothing."""

    step: Any = torch.optim.LBFGS.step
