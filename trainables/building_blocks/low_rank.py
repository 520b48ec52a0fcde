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
    spectra = {name: _spectrum(tensor.flatten(1)) for name, tensor in params.items() if tensor.dim() > 1}
    if not spectra:
        return pack("model", params)
    # Asked once for all tensors, as every answer is waited for on a GPU.
    kept = torch.stack([_rank(squares, energy) for squares, _ in spectra.values()]).tolist()
    payload: Payload = {}
    small = set()
    for (name, (squares, vectors)), k in zip(spectra.items(), kept, strict=True):
        matrix = params[name].flatten(1)
        if k * (sum(matrix.shape) + 1) < matrix.numel():
            small.add(name)
            factors = _factors(matrix, squares[:k].sqrt(), vectors[:, :k])
            payload |= {f"{factor}/{name}": tensor for factor, tensor in zip(FACTORS, factors, strict=True)}
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


def _spectrum(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The squares of the singular values, largest first, and the singular vectors of the shorter side as columns: the
    eigenvalues and eigenvectors of the smaller of Δ Δᵀ and Δᵀ Δ.

    In float64 they are as exact as a decomposition of Δ in float32, and take half as long."""
    exact = matrix.double()
    gram = exact @ exact.T if _is_wide(matrix) else exact.T @ exact
    # A model that diverged has no such values. Its factors are not finite, as it is not: a round says so, not LAPACK.
    squares, vectors = torch.linalg.eigh(gram.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0))
    return squares.flip(0).clamp(min=0), vectors.flip(1)


def _factors(matrix: Tensor, s: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """U (m, K), s (K,) and V (K, n) of the matrix. A pair of vectors may have either sign: here the largest entry of
    each column of U is positive."""
    exact = matrix.double()
    least = torch.finfo(torch.float64).tiny  # the one value of a matrix of zeros
    others = (exact.T if _is_wide(matrix) else exact) @ vectors / s.clamp(min=least)
    u, v = (vectors, others) if _is_wide(matrix) else (others, vectors)
    sign = u.gather(0, u.abs().argmax(dim=0, keepdim=True)).sign()
    return (u * sign).to(matrix.dtype), s.to(matrix.dtype), (v * sign).T.to(matrix.dtype).contiguous()


def _is_wide(matrix: Tensor) -> bool:
    return matrix.shape[0] <= matrix.shape[1]


def _rank(squares: Tensor, energy: float) -> Tensor:
    """K, a whole number of at least 1."""
    total = squares.cumsum(dim=0)
    return 1 + (total[:-1] < energy * total[-1]).sum()
