"""Sub-models of `cnn_small` for the replays: which channels a client trains, cutting them out, and DFRD's Eq. (1)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from tests.trainables.methods.replays.plain import Params
from trainables.rng import Rng

#: Channels of the three convolutions.
SIZES = (64, 128, 256)
#: The channels kept of each convolution.
Kept = list[list[int]]


def width(client: int, clients: int, rho: int, sigma: int = 4) -> float:
    """`R_i = (1/2)^min(σ, ⌊ρ i/N⌋)`, i from 1."""
    return 0.5 ** min(sigma, math.floor(rho * (client + 1) / clients))


def kept_channels(how: str, rate: float, number: int, client: int, seed: Rng) -> Kept:
    """The `⌈R n⌉` channels of every convolution in round `number`: the first ones (`static`), drawn anew for client and
    round (`random`), or consecutive ones from offset `number - 1` (`rolling`) or `1 - number` (`rolling backward`)."""
    found = []
    for place, n in enumerate(SIZES, start=1):
        k = math.ceil(rate * n)
        if how == "static" or k == n:
            found.append(list(range(k)))
        elif how == "rolling":
            found.append([(number - 1 + j) % n for j in range(k)])
        elif how == "rolling backward":
            found.append([(n + 1 - number + j) % n for j in range(k)])
        else:
            random = seed.torch("submodel", "round", number, "client", client, f"conv{place}")
            found.append(sorted(torch.randperm(n, generator=random)[:k].tolist()))
    return found


def _places(name: str, full: Tensor, kept: Kept) -> Tensor:
    """Which entries of the full tensor the sub-model has, as flat positions in the sub-model's shape."""
    layer, number, _ = [*name.split("."), ""][:3]
    positions = torch.arange(full.numel()).view(full.shape)
    if layer == "head":
        return positions[:, kept[-1]] if name == "head.weight" else positions
    i = int(number)
    positions = positions[kept[i]]
    return positions[:, kept[i - 1]] if full.dim() == 4 and i > 0 else positions


def cut(model: Params, kept: Kept) -> Params:
    """The sub-model."""
    return {name: full.flatten()[_places(name, full, kept)] for name, full in model.items()}


def put_together(
    model: Params, parts: Sequence[tuple[Kept, Params, float]], holders: Sequence[Tensor] | None = None
) -> Params:
    """Eq. (1): `Σ_i p_i θ_i[l,k] / Σ_i p_i` over the clients i that held the entry; what nobody held stays.

    With `holders`, `(C,)` per part, a class's row of the head counts only from clients that hold the class."""
    whole: Params = {}
    for name, full in model.items():
        total, weights = torch.zeros(full.numel()), torch.zeros(full.numel())
        for number, (kept, part, weight) in enumerate(parts):
            places = _places(name, full, kept)
            share = torch.full(places.shape, weight)
            if holders is not None and name.startswith("head."):
                share[~holders[number]] = 0.0
            total[places.flatten()] += (share * part[name]).flatten()
            weights[places.flatten()] += share.flatten()
        held = weights > 0
        merged = full.flatten().clone()
        merged[held] = total[held] / weights[held]
        whole[name] = merged.view(full.shape)
    return whole
