"""A model in a few numbers, by which two processes tell how far apart their models are without exchanging them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def fingerprint(params: Mapping[str, Tensor]) -> dict[str, list[float]]:
    """`norms`, the L2 norm of every tensor in the order of their names, and `shadows`, its product with fixed standard
    normal numbers.

    The shadow of a difference d is normal with standard deviation |d|, so shadows of two models say how far apart they
    are."""
    import torch

    norms, shadows = [], []
    for place, name in enumerate(sorted(params)):
        flat = params[name].detach().double().contiguous().flatten()
        norms.append(float(flat.norm()))
        shadows.append(
            float(flat @ torch.randn(len(flat), generator=torch.Generator().manual_seed(place), dtype=torch.float64))
        )
    return {"norms": norms, "shadows": shadows}


def apart(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """About |a - b| / |a| over all weights of two models with these fingerprints."""
    if len(one["shadows"]) != len(other["shadows"]):
        raise ValueError(f"models of {len(one['shadows'])} and {len(other['shadows'])} tensors")
    return _length([a - b for a, b in zip(one["shadows"], other["shadows"], strict=True)]) / max(
        _length(one["norms"]), 1e-300
    )


def _length(values: Sequence[float]) -> float:
    return math.sqrt(math.fsum(v * v for v in values))
