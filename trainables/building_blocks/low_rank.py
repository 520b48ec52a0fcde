"""Tensors as they cross the wire compressed: truncated singular values, as in FedKD.

    Δ = U diag(s) V,   U (m, r), s (r,), V (r, n)            Δ a tensor's first dimension by all others
    K = the fewest singular values with Σ_(k≤K) s_k² ≥ E Σ_k s_k²                E  energy, in (0, 1]

A tensor is sent as its first K columns of U, values and rows of V, entries `u/name`, `s/name`, `v/name` of a payload;
whole, as `model/name`, where it has one dimension, or where these are no fewer numbers.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from trainables.params import pack, unpack
from trainables.wire import Params, Payload

#: Prefixes of the entries of a compressed tensor: its factors.
FACTORS = ("u", "s", "v")


def compressed(params: Params, energy: float) -> Payload:
    """`params` with each matrix's energy kept up to the share `energy`, as entries of a payload."""
    factors = {name: _svd(tensor) for name, tensor in params.items() if tensor.dim() > 1}
    if not factors:
        return pack("model", params)
    # Asked once for all tensors, as every answer is waited for on a GPU.
    kept = torch.stack([_rank(s, energy) for _, s, _ in factors.values()]).tolist()
    payload: Payload = {}
    small = set()
    for (name, (u, s, v)), k in zip(factors.items(), kept, strict=True):
        if k * (u.shape[0] + v.shape[1] + 1) < params[name].numel():
            small.add(name)
            payload |= {f"u/{name}": u[:, :k].clone(), f"s/{name}": s[:k].clone(), f"v/{name}": v[:k].clone()}
    return payload | pack("model", {name: tensor for name, tensor in params.items() if name not in small})


def expanded(payload: Mapping[str, Tensor], shapes: Mapping[str, Tensor]) -> Params:
    """What `compressed` made, multiplied out: tensors shaped as those of the same names in `shapes`."""
    whole = unpack("model", payload)
    u, s, v = (unpack(factor, payload) for factor in FACTORS)
    return {
        name: whole[name] if name in whole else ((u[name] * s[name]) @ v[name]).view(tensor.shape)
        for name, tensor in shapes.items()
    }


def entries(payload: Mapping[str, Tensor]) -> Payload:
    """The entries of a payload that `compressed` made."""
    return {key: t for key, t in payload.items() if key.partition("/")[0] in ("model", *FACTORS)}


def _svd(tensor: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """U, s and V of a tensor as a matrix. A pair of vectors may have either sign: here the largest entry of each column
    of U is positive."""
    u, s, v = torch.linalg.svd(tensor.flatten(1), full_matrices=False)
    sign = u.gather(0, u.abs().argmax(dim=0, keepdim=True)).sign()
    return u * sign, s, v * sign.T


def _rank(s: Tensor, energy: float) -> Tensor:
    """K, a whole number of at least 1."""
    total = s.double().square().cumsum(dim=0)
    return 1 + (total[:-1] < energy * total[-1]).sum()
