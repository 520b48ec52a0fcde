"""What a computation costs in multiply-adds and operations: the same on every machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


@dataclass
class Computed:
    """What tensors have computed: multiply-adds, and operations of any kind."""

    multiply_adds: float = 0.0
    operations: int = 0


@contextmanager
def counting() -> Iterator[Computed]:
    """Counts what is computed inside."""
    from torch.utils.flop_counter import flop_registry  # takes long to import

    found = Computed()

    class Mode(TorchDispatchMode):
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # nothing is compiled here, and to be skipped by its compiler takes a second of imports

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if torch.is_inference_mode_enabled():  # operations that are made of others arrive here whole
                with self:
                    made = func.decompose(*args, **(kwargs or {}))
                if made is not NotImplemented:
                    return made
            made = func(*args, **(kwargs or {}))
            found.operations += 1
            if (count := flop_registry.get(func._overloadpacket)) is not None:
                found.multiply_adds += count(*args, **(kwargs or {}), out_val=made) / 2
            return made

    with Mode():  # type: ignore[no-untyped-call]
        yield found
