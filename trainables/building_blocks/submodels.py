"""Width-based sub-models: which channels a client trains, cutting them out, and putting them back (DFRD Sec. 2.4, Eq.
1).

A module names, for each dimension of each tensor, the channel group it runs over (`module.axes`). A sub-model is a set
of channel indices per group; a residual stream is one group, so additions always meet on equal channels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from trainables.federation import Federation
from trainables.models import Model
from trainables.models import width as channels_at
from trainables.wire import Params

#: Channel indices by group name.
Channels = dict[str, Tensor]


def choose(fed: Federation, client: int, rule: Callable[[str, int, int], Tensor]) -> Channels:
    """The channels that client `client` trains: `rule(group, n, k)` gives k = ceil(R_i n) indices out of a group's n
    channels.

    A client of full width takes all of them in order. The rules themselves are the methods' own: see `channels` in
    `trainables.methods.heterofl`, `feddropout` and `fedrolex`."""
    chosen: Channels = {}
    for group, n in sorted(fed.network().group_sizes.items()):
        k = channels_at(n, fed.widths[client])
        chosen[group] = torch.arange(n) if k == n else rule(group, n, k)
    return chosen


def extract(fed: Federation, params: Params, chosen: Channels) -> Params:
    """The sub-model's tensors, cut out of the full ones."""
    return {name: _cut(params[name], index) for name, index in _indices(fed, chosen).items()}


class Part(NamedTuple):
    """A sub-model that a client has trained."""

    channels: Channels
    params: Params
    #: p_i.
    weight: float
    #: Which classes the client owns, boolean `(C,)`, where only their rows of the last layer count.
    owned: Tensor | None = None


def merge(fed: Federation, params: Params, parts: Iterable[Part]) -> Params:
    """Eq. (1): every entry is the weighted mean over the clients that held it; an entry nobody held stays.

    Where parts say what they own, the last layer's row of a class is averaged over those clients only that own the
    class. Sums run in float64 in the given order; the parts are gone over once, and none is kept."""
    total = {name: torch.zeros_like(full, dtype=torch.float64) for name, full in params.items()}
    held = {name: torch.zeros_like(full, dtype=torch.float64) for name, full in params.items()}
    for part in parts:
        indices = _indices(fed, part.channels)
        rows = set[str]() if part.owned is None else _last_layer(fed.network())
        for name, full in params.items():
            index = indices[name]
            share: Tensor | float = part.weight
            if part.owned is not None and name in rows:
                share = part.weight * part.owned.to(total[name]).view(-1, *[1] * (full.dim() - 1))
            grid = ... if all(i is None for i in index) else _grid(full, index)
            total[name][grid] += share * part.params[name].double()
            held[name][grid] += share
    return {
        name: torch.where(held[name] > 0, total[name] / held[name], full).to(full.dtype)
        for name, full in params.items()
    }


def _last_layer(module: Model) -> set[str]:
    """Names of the tensors of the last linear layer, whose rows belong to classes."""
    last = [name for name, m in module.named_modules() if isinstance(m, torch.nn.Linear)][-1]
    return {f"{last}.weight", f"{last}.bias"}


def _indices(fed: Federation, chosen: Mapping[str, Tensor]) -> dict[str, tuple[Tensor | None, ...]]:
    """For each tensor, the positions taken along each dimension; None for all of it."""
    module = fed.network()
    found: dict[str, tuple[Tensor | None, ...]] = {}
    for name, axes in module.axes.items():
        found[name] = tuple(
            None if axis is None else _positions(chosen[axis.group], axis.repeat, module.group_sizes[axis.group])
            for axis in axes
        )
    return found


def _positions(base: Tensor, repeat: int, size: int) -> Tensor | None:
    if len(base) == size:
        return None
    return (base[:, None] * repeat + torch.arange(repeat)).flatten()


def _cut(tensor: Tensor, index: tuple[Tensor | None, ...]) -> Tensor:
    for dimension, positions in enumerate(index):
        if positions is not None:
            tensor = tensor.index_select(dimension, positions.to(tensor.device))
    return tensor


def _grid(tensor: Tensor, index: tuple[Tensor | None, ...]) -> tuple[Tensor, ...]:
    """Open mesh of positions, one per dimension, that addresses the sub-tensor."""
    full = [torch.arange(n) if i is None else i for n, i in zip(tensor.shape, index, strict=True)]
    return tuple(
        i.to(tensor.device).view(*(-1 if d == own else 1 for d in range(len(full)))) for own, i in enumerate(full)
    )
