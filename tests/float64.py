"""The same job in float64: same draws, same start, same batches, twice the digits. What faster ways are measured
against.

    with in_float64():
        exact = Simulation(name, values, seed, device)
        put_state(exact, to_float64(state_of(loop)))
        exact.run_round()

Within, PyTorch is told at its own door (`TorchFunctionMode`) to make float64 where the code says float32 or nothing, so
no code under test knows of it. Two things stay as they are in float32, and are widened afterwards: what is drawn,
because PyTorch draws other numbers in float64, and a client's normalised images, so that both jobs are given the same
input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from trainables import federation

NARROW, WIDE = torch.float32, torch.float64
_DRAWN_ANEW = (torch.randn, torch.rand, torch.randn_like, torch.rand_like)
_DRAWN_IN_PLACE = (Tensor.normal_, Tensor.uniform_)
_RELU = (F.relu, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_)
_POOLING = (F.max_pool2d, torch.max_pool2d)


def to_float64(value: Any) -> Any:
    """A nest of dictionaries, lists and tuples with its float32 tensors widened."""
    return _cast(value, NARROW, WIDE)


def to_float32(value: Any) -> Any:
    """The same with float64 tensors rounded."""
    return _cast(value, WIDE, NARROW)


def _cast(value: Any, old: torch.dtype, new: torch.dtype) -> Any:
    if isinstance(value, Tensor):
        return value.to(new) if value.dtype == old else value
    if isinstance(value, dict):
        return {key: _cast(item, old, new) for key, item in value.items()}
    return type(value)(_cast(item, old, new) for item in value) if isinstance(value, (list, tuple)) else value


class Float64(TorchFunctionMode):
    """`margin` is how near the job came to a decision that rounding could turn: see `_decided`. Set it to 1 to begin
    anew."""

    def __init__(self) -> None:
        super().__init__()
        self.margin, self.asleep = 1.0, False

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.asleep:
            return func(*args, **kwargs)
        if func in _DRAWN_ANEW and kwargs.get("dtype") in (None, NARROW):
            return func(*args, **kwargs | {"dtype": NARROW}).to(WIDE)
        if (func in _DRAWN_IN_PLACE or getattr(func, "__module__", "") == "torch.nn.init") and _first(
            args, kwargs
        ).dtype == WIDE:
            return _drawn(func, args, kwargs)
        if func is torch.multinomial:
            return func(args[0].to(NARROW), *args[1:], **kwargs)
        if func is Tensor.float:
            return args[0].to(WIDE)
        self._decided(func, args)
        return func(
            *(WIDE if a is NARROW else a for a in args),
            **{key: WIDE if a is NARROW else a for key, a in kwargs.items()},
        )

    @torch.no_grad()
    def _decided(self, func: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Keeps the smallest distance from a turn, in units of the root mean square of what is decided upon.

        A ReLU turns at zero, and pooling where the second largest of a window reaches the largest. Near such a place
        the gradient jumps, and the correct float32 gradient is either of two; no bound on rounding says which."""
        if func in _RELU:
            distance, x = args[0].abs(), args[0]
        elif func in _POOLING:
            x = args[0]
            if min(x.shape[-2:]) < 2:
                return
            two = F.unfold(x.flatten(0, 1)[:, None], 2, stride=2).topk(2, dim=1).values
            distance = (two[:, 0] - two[:, 1])[two[:, 0] != 0]  # zeros that a ReLU has left have no gradient
        elif func is torch.maximum and isinstance(args[1], Tensor):
            x = args[0]
            distance = (x - args[1]).abs()[(x != 0) | (args[1] != 0)]  # as in a window of padding
        else:
            return
        if distance.numel():
            self.margin = min(self.margin, float(distance.min() / x.square().mean().sqrt().clamp(min=1e-300)))


def _first(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    found: Tensor = args[0] if args else kwargs["tensor"]
    return found


@torch.no_grad()
def _drawn(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """Fills the first argument with what the call draws for a float32 tensor of its shape and layout."""
    filled = _first(args, kwargs)
    narrow = filled.to(NARROW)
    func(narrow, *args[1:], **{key: value for key, value in kwargs.items() if key != "tensor"})
    return filled.copy_(narrow)


@contextmanager
def in_float64() -> Iterator[Float64]:
    """Within, tensors are made, and jobs run, in float64."""
    mode, before, normalise = Float64(), torch.get_default_dtype(), federation.normalise

    def given(images: Tensor, mean: Tensor, std: Tensor) -> Tensor:
        mode.asleep = True
        try:
            return normalise(images, mean.to(NARROW), std.to(NARROW)).to(WIDE)
        finally:
            mode.asleep = False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(federation, "normalise", given)
        torch.set_default_dtype(WIDE)
        try:
            with mode:
                yield mode
        finally:
            torch.set_default_dtype(before)
