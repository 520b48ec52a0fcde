"""Named tensors: taking them from a module or an optimiser, putting them back, measuring and packing them.

Tensors in a `Params` are never changed in place; code that needs another value makes another tensor. (A flat-vector
view would be shorter, but it aliases: clients would train on each other's weights.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from trainables.wire import Params, Payload


def take(module: nn.Module) -> Params:
    """A copy of every parameter and buffer of `module`, memory layout kept."""
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


@torch.no_grad()
def put(module: nn.Module, params: Mapping[str, Tensor]) -> None:
    """Copies `params` into `module`; the module's own tensors stay the same objects.

    Raises `KeyError` or `RuntimeError` where names or shapes do not fit."""
    own = module.state_dict()
    if own.keys() != params.keys():
        raise KeyError(f"parameters differ in {sorted(own.keys() ^ params.keys())}")
    for name, tensor in params.items():
        if own[name].shape != tensor.shape:
            raise RuntimeError(f"{name} is {tuple(tensor.shape)}, the module's is {tuple(own[name].shape)}")
        own[name].copy_(tensor)


def equal(one: Params, other: Params) -> bool:
    """Whether both hold the same values, bit for bit, under the same names."""
    if one.keys() != other.keys() or any(tensor.shape != other[name].shape for name, tensor in one.items()):
        return False
    # Asked once for all tensors, as every answer is waited for on a GPU.
    return not one or bool(torch.stack([(tensor == other[name]).all() for name, tensor in one.items()]).all())


def versions(params: Params) -> tuple[tuple[str, Tensor, int], ...] | None:
    """What `params` hold now, to be compared with `is_same`; None where a change in place could not be noticed."""
    if any(tensor.is_inference() for tensor in params.values()):
        return None
    return tuple((name, tensor, tensor._version) for name, tensor in params.items())


def is_same(one: tuple[tuple[str, Tensor, int], ...] | None, other: tuple[tuple[str, Tensor, int], ...] | None) -> bool:
    """Whether both `versions` are of the same tensors, unchanged. Nothing is computed for the answer."""
    if one is None or other is None or len(one) != len(other):
        return False
    return all(a[0] == b[0] and a[1] is b[1] and a[2] == b[2] for a, b in zip(one, other, strict=True))


class WeightedSum:
    """A weighted sum of equally shaped parameters that takes them in one after the other and keeps none of them.

    Sums run in float64 in the order of `add`. Integer buffers are those of the first entry."""

    def __init__(self) -> None:
        self._weight = 0.0
        self._sums: Params = {}
        self._first: Params = {}

    @torch.no_grad()
    def add(self, params: Params, weight: float) -> None:
        """Adds `weight` times `params`."""
        if not self._first:
            self._first = {n: t if not t.is_floating_point() else t.new_empty(0) for n, t in params.items()}
            floats = [(name, tensor) for name, tensor in params.items() if tensor.is_floating_point()]
            self._sums = {name: torch.zeros_like(tensor, dtype=torch.float64) for name, tensor in floats}
        self._weight += weight
        for name, total in self._sums.items():
            total += weight * params[name].double()

    def mean(self) -> Params:
        """The sum divided by the sum of the weights. Raises `ValueError` where nothing was added."""
        if not self._first:
            raise ValueError("There is no mean of no parameters.")
        return {
            name: (self._sums[name] / self._weight).to(first.dtype) if name in self._sums else first
            for name, first in self._first.items()
        }


def average(many: Iterable[tuple[Params, float]]) -> Params:
    """The weighted mean of equally shaped parameters; weights are normalised to sum to one. See `WeightedSum`."""
    found = WeightedSum()
    for params, weight in many:
        found.add(params, weight)
    return found.mean()


def pack(prefix: str, params: Mapping[str, Tensor]) -> Payload:
    """`params` as entries `prefix/name` of a payload."""
    return {f"{prefix}/{name}": tensor for name, tensor in params.items()}


def unpack(prefix: str, payload: Mapping[str, Tensor]) -> Params:
    """The entries `prefix/name` of a payload, without the prefix; empty where there are none."""
    start = prefix + "/"
    return {name.removeprefix(start): tensor for name, tensor in payload.items() if name.startswith(start)}


def count_bytes(payload: Mapping[str, Tensor]) -> int:
    """Bytes of the tensors' values as they cross the wire."""
    return sum(tensor.numel() * tensor.element_size() for tensor in payload.values())


def on(device: torch.device, params: Mapping[str, Tensor]) -> Params:
    """The same tensors on `device` (not copied where they are there already)."""
    return {name: tensor.to(device) for name, tensor in params.items()}


def take_state(optimiser: torch.optim.Optimizer, module: nn.Module) -> dict[str, Tensor]:
    """A copy of the optimiser's tensors for `module`'s parameters, as `parameter/quantity` (Adam: step, exp_avg,
    exp_avg_sq).

    Empty before the first step."""
    return {
        f"{name}/{quantity}": value.clone()
        for name, parameter in module.named_parameters()
        for quantity, value in optimiser.state.get(parameter, {}).items()
    }


def put_state(optimiser: torch.optim.Optimizer, module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Continues from a state that `take_state` returned for the same kind of optimiser; an empty one is a fresh
    start."""
    for name, parameter in module.named_parameters():
        own = {
            key.removeprefix(f"{name}/"): value.clone()
            for key, value in state.items()
            if key.rpartition("/")[0] == name
        }
        if own:
            optimiser.state[parameter] = own
