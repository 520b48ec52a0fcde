"""Randomness by name. A stream is a path of words and numbers; the same path always gives the same numbers.

    rng = Rng(seed).child("round", 3, "client", 7)
    torch.randn(4, generator=rng.torch("noise"))

Nothing draws from a global generator, so results do not depend on the order in which clients run, on packing, or on
a restart. Numbers are drawn on the CPU and then moved, so a GPU run sees the same noise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Rng:
    """The point in the tree of random streams named by `path`; immutable, cheap, safe to hand on."""

    seed: int
    path: tuple[str | int, ...] = ()

    def child(self, *keys: str | int) -> Rng:
        """The stream below this one with that name."""
        return Rng(self.seed, self.path + keys)

    def key(self, *keys: str | int) -> int:
        """A 63-bit number that belongs to the path and to nothing else."""
        text = "/".join(map(repr, (self.seed, *self.path, *keys)))
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1

    def torch(self, *keys: str | int) -> torch.Generator:
        """A fresh CPU generator at the start of the stream."""
        return torch.Generator().manual_seed(self.key(*keys))

    def numpy(self, *keys: str | int) -> np.random.Generator:
        """A fresh NumPy generator at the start of the stream."""
        return np.random.default_rng(self.key(*keys))


def uniform_(tensor: Tensor, low: float, high: float, generator: torch.Generator) -> None:
    """Fills `tensor`, on any device, from U(low, high) with the numbers that the CPU `generator` gives on a CPU."""
    _fill(tensor, Tensor.uniform_, low, high, generator)


def normal_(tensor: Tensor, mean: float, std: float, generator: torch.Generator) -> None:
    """Fills `tensor`, on any device, from N(mean, std²) with the numbers that the CPU `generator` gives on a CPU."""
    _fill(tensor, Tensor.normal_, mean, std, generator)


@torch.no_grad()
def _fill(tensor: Tensor, draw: Callable[..., Tensor], first: float, second: float, generator: torch.Generator) -> None:
    # Of the same memory layout, as numbers are drawn in the order in which they lie.
    here = tensor if tensor.device.type == "cpu" else torch.empty_like(tensor, device="cpu")
    draw(here, first, second, generator=generator)
    if here is not tensor:
        tensor.copy_(here)
