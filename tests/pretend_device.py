"""A GPU that is not there: a device of PyTorch's own kind, whose memory is the processor's and whose rules are CUDA's.

    with pretending() as seen:
        simulation = Simulation(name, values, seed, DEVICE)
        simulation.run_round()
    assert seen.waits["local.train"] == 4

PyTorch keeps one place free for a device that it does not know (`privateuse1`). Here that place is taken by one kernel
for all operations, written in Python: it refuses what CUDA refuses, counts what makes the processor wait for a GPU, and
lets the processor's own kernel compute in the memory of the tensors. Everything above kernels is PyTorch's own:
autograd, `torch.func`, optimisers, modules, saving and loading. So, unlike a tensor subclass with
`__torch_dispatch__`, it is seen by `vmap` as any device is.

Refused (`MixedDevices`): a tensor of the processor beside one of the device, but for a tensor without dimensions in an
operation by entries, as CUDA has it; a place or mask of the processor as an index (CUDA copies it over, unseen); a
generator of the processor's random numbers drawing on the device; the device's own generator, whose numbers would not
be those of a run on a processor; work on the device that is out of sight, outside `pretending`.

Counted (`Seen`): what the processor must wait for until the GPU has done all that it was told.

Recorded (`record`): the operations of a step with the tensors that they were given, as a CUDA graph has them. A replay
runs no Python: what the step reads from anywhere but these tensors is what it was when it was recorded.

Not shown: how fast a GPU is, its rounding, its memory, and code that asks for `cuda` by name.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.utils import backend_registration

from tests.pretend_memory import METADATA, on_cpu, on_device, view

NAME = "pretend"
DEVICE = f"{NAME}:0"
#: PyTorch before 2.9 takes no device written in Python.
AVAILABLE = hasattr(backend_registration, "_setup_privateuseone_for_python_backend")


class MixedDevices(RuntimeError):
    """An operation that CUDA would refuse, or would make possible by a copy that nobody asked for."""


#: Kinds of waiting beside the names of operations that ask for a value or for a shape that hangs on values.
TO_CPU, TO_DEVICE = "to cpu", "to device"


@dataclass
class Seen:
    """What the processor waited for, by where in `trainables` (`local.train`, or `elsewhere`) and what: the name of an
    operation that asks for a value (`.item()`, `bool()`, `nonzero`, an index by a mask), or a copy of a tensor."""

    noted: Counter[tuple[str, str]] = field(default_factory=Counter)
    #: Operations on the device, all of them.
    operations: int = 0

    def note(self, what: str) -> None:
        """Enters one of these."""
        self.noted[_place(), what] += 1

    @property
    def waits(self) -> Counter[str]:
        """By place, how often the processor waited for a result."""
        return self._by_place(lambda what: what != TO_DEVICE)

    @property
    def moved(self) -> Counter[str]:
        """By place, how many tensors went to the device. A copy waits too, unless it comes from pinned memory, but
        nothing is asked."""
        return self._by_place(lambda what: what == TO_DEVICE)

    def _by_place(self, counted: Callable[[str], bool]) -> Counter[str]:
        found: Counter[str] = Counter()
        for (place, what), times in self.noted.items():
            if counted(what):
                found[place] += times
        return found


def _place() -> str:
    """The function of `trainables` that is at work, `local.train`."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("trainables."):
            return f"{module.rpartition('.')[2]}.{frame.f_code.co_qualname.partition('.<locals>')[0]}"
        frame = frame.f_back
    return "elsewhere"


#: The devices' work is entered into the innermost.
_watching: list[Seen] = []


@contextmanager
def pretending() -> Iterator[Seen]:
    """Within, there is the device `torch.device("pretend:0")`, and what it does is entered into what this yields."""
    install()
    seen = Seen()
    _watching.append(seen)
    try:
        # With threads of its own, autograd would want one per device from the first backward pass of the process on.
        with torch.autograd.set_multithreading_enabled(False):
            yield seen
    finally:
        _watching.pop()


# --- recorded steps --------------------------------------------------------------------------------------------------

#: An operation of the processor that was done for the device, with what it was given and what it made, and the device's
#: tensors, which keep the memory of both.
_Done = tuple[Callable[..., Any], Sequence[Any], dict[str, Any], Any, Any]
#: Where what is done is entered while a step is recorded.
_tape: list[_Done] | None = None


def record(step: Callable[[], None]) -> Callable[[], None]:
    """What CUDA makes of `step`, which it refuses where the step waits for the device or brings something to it."""
    global _tape
    assert _tape is None, "a step is being recorded"
    step()  # as on CUDA: in it an optimiser makes its memory
    _tape = tape = []
    try:
        with pretending() as seen:
            step()
    finally:
        _tape = None
    assert not seen.waits and not seen.moved, seen.noted
    assert tape, "nothing was done on the device"

    @torch.no_grad()
    def replay() -> None:
        for operation, inputs, named, made, _ in tape:
            _into(made, operation(*inputs, **named))

    return replay


def _into(place: Any, value: Any) -> None:
    """What an operation gives anew, where its result was when it was recorded. Views and changed arguments are there
    already."""
    if isinstance(place, Tensor):
        if place.data_ptr() != value.data_ptr():
            place.copy_(value)
    elif isinstance(place, (list, tuple)):
        for one, other in zip(place, value, strict=True):
            _into(one, other)


def is_pretend(value: Any) -> bool:
    """Whether `value` is a tensor of the device."""
    return isinstance(value, Tensor) and value.device.type == NAME


# --- the one kernel --------------------------------------------------------------------------------------------------

#: Operations not marked as by entries that take a tensor without dimensions from the processor, as CUDA's do.
_SCALARS_TOO = {"fill_", "index_put_", "_index_put_impl_", "masked_fill", "masked_fill_", "lerp", "where"}
#: Where positions may be a mask, whose length the processor must know; marked as if they always were.
_BY_INDEX = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put"}


@dataclass(frozen=True)
class _Rule:
    """What is known of an operation: its name, whether it takes the processor's numbers, which arguments it writes to,
    whether it draws, whether the processor must know a value for it."""

    name: str
    scalars: bool
    written: tuple[int, ...]
    draws: bool
    asks: bool


@cache
def _rule(op: Any) -> _Rule:
    name, tags = op.overloadpacket.__name__, set(op.tags)
    arguments = op._schema.arguments
    return _Rule(
        name,
        torch.Tag.pointwise in tags or name in _SCALARS_TOO or name.startswith(("_foreach", "_fused")),
        tuple(i for i, a in enumerate(arguments) if a.alias_info is not None and a.alias_info.is_write),
        torch.Tag.nondeterministic_seeded in tags,
        bool({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & tags) and name not in _BY_INDEX,
    )


def _kernel(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Every operation of the device: checked, counted, computed by the processor's kernel in the same memory."""
    rule = _rule(op)
    pairs: dict[int, tuple[Tensor, Tensor]] = {}

    def there(value: Any) -> Any:
        kind = type(value)
        if kind is list or kind is tuple:
            return [there(item) for item in value]
        if isinstance(value, Tensor):
            if value.device.type == NAME:
                if id(value) not in pairs:
                    pairs[id(value)] = value, on_cpu(value)
                return pairs[id(value)][1]
            if value.dim() or not rule.scalars:
                raise MixedDevices(f"{op}: a tensor {tuple(value.shape)} of {value.device} beside tensors of {NAME}")
        elif kind is torch.Generator and value.device.type != NAME:
            raise MixedDevices(f"{op}: draws on {NAME} with a generator of {value.device}; draw there and move")
        return torch.device("cpu") if kind is torch.device else value

    with torch._C.DisableTorchFunction():
        seen = _seen(op)
        inputs = [there(value) for value in args], {key: there(value) for key, value in kwargs.items()}
        if rule.draws:
            raise MixedDevices(f"{op}: draws on {NAME}, whose numbers are its own; draw on the processor and move")
        for place in rule.written:
            if place < len(args) and isinstance(args[place], Tensor) and args[place].device.type != NAME:
                raise MixedDevices(f"{op}: writes to a tensor of {args[place].device} what is computed on {NAME}")
        seen.operations += 1
        if rule.asks or (rule.name in _BY_INDEX and any(_is_mask(i) for i in args[1])):
            seen.note(rule.name)
        made = op(*inputs[0], **inputs[1])
        if _tape is not None:
            _tape.append((op, *inputs, made, pairs))
        return _returned(made, list(pairs.values()))


def _is_mask(index: Any) -> bool:
    return isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8)


def _seen(op: Any) -> Seen:
    if not _watching:
        raise MixedDevices(f"{op}: work on {NAME} outside of `pretending`")
    return _watching[-1]


def _returned(result: Any, pairs: Sequence[tuple[Tensor, Tensor]]) -> Any:
    """The processor's `result` as the device's: the argument itself where that was changed, a view of an argument
    where it is one, else a tensor of its own. `pairs`: arguments of the device and what the processor took for them."""
    if isinstance(result, (list, tuple)):
        return type(result)(_returned(part, pairs) for part in result)
    if not isinstance(result, Tensor):
        return result
    for own, twin in pairs:
        if result is twin:
            if own.shape != twin.shape:  # `out=` of a tensor that was empty
                own.data = on_device(twin)
            return own
    memory = result.untyped_storage().data_ptr()
    for own, _ in pairs:
        if memory and memory == own.untyped_storage().data_ptr() and result.dtype == own.dtype:
            return view(own, result)
    return on_device(result)


def _copy_from(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    """Every copy that has the device on either side."""
    seen = _seen("_copy_from")
    seen.operations += 1
    if not is_pretend(source):
        seen.note(TO_DEVICE)
    if not is_pretend(target):
        seen.note(TO_CPU)
    here, there = (on_cpu(t) if is_pretend(t) else t for t in (source, target))
    there.copy_(here)
    if _tape is not None:
        _tape.append((there.copy_, (here,), {}, there, (source, target)))
    return target


def _convolution(*args: Any) -> Any:
    """PyTorch hands convolutions of devices that it does not know to the device, under another name."""
    return _kernel(torch.ops.aten.convolution.default, *args)


def _convolution_backward(gradient: Tensor, x: Tensor, weight: Tensor, *rest: Any) -> Any:
    *how, groups, asked = rest
    transposed = how[3]
    bias = [weight.shape[1] * groups if transposed else weight.shape[0]] if asked[2] else None
    return _kernel(torch.ops.aten.convolution_backward.default, gradient, x, weight, bias, *how, groups, asked)


def _set(tensor: Tensor, storage: Any, *where: Any) -> Tensor:
    """`tensor` becomes the tensor over that storage of the device: metadata, no work."""
    where = where or (0, [storage.nbytes() // tensor.element_size()], [1])
    op = torch.ops.aten.set_.source_Storage_storage_offset
    made: Tensor = op.redispatch(METADATA, tensor, storage, *where)
    return made


# --- bfloat16 --------------------------------------------------------------------------------------------------------

#: What CUDA's autocast computes in the lower precision and, of what models here use, in float32.
LOWERED = ("conv2d", "conv_transpose2d.input", "linear", "matmul", "addmm", "mm", "bmm", "baddbmm")
WIDENED = ("group_norm", "layer_norm", "log_softmax.int", "softmax.int", "nll_loss_nd", "cross_entropy_loss")


def _autocasts() -> None:
    """Autocast on the device lowers and widens what CUDA's does, in front of everything that computes."""
    getattr(torch, NAME).get_amp_supported_dtype = lambda: [torch.bfloat16]
    key = "AutocastPrivateUse1"
    everything, aten = (torch.library.Library(space, "IMPL", key) for space in ("_", "aten"))
    _libraries.extend((everything, aten))
    everything.fallback(torch.library.fallthrough_kernel)
    without = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

    def cast(op: Any, kind: torch.dtype) -> Callable[..., Any]:
        def to(value: Any) -> Any:
            if isinstance(value, (list, tuple)):
                return type(value)(map(to, value))
            return value.to(kind) if isinstance(value, Tensor) and value.is_floating_point() else value

        def run(*args: Any, **kwargs: Any) -> Any:
            with torch._C._ExcludeDispatchKeyGuard(without):
                return op(*map(to, args), **{name: to(value) for name, value in kwargs.items()})

        return run

    for names, kind in ((LOWERED, torch.bfloat16), (WIDENED, torch.float32)):
        for name in names:
            packet, _, overload = name.partition(".")
            aten.impl(name, cast(getattr(getattr(torch.ops.aten, packet), overload or "default"), kind))


# --- saving, loading, copies of whole storages: what PyTorch does not leave to kernels --------------------------------


def _loaded(storage: Any, location: str) -> Any:
    """What `torch.load(map_location="pretend:0")` asks for."""
    if not location.startswith(NAME):
        return None
    bytes_ = torch.empty(0, dtype=torch.uint8).set_(storage)
    return bytes_.to(torch.device(NAME, 0)).untyped_storage()


def _cloned(plain: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`UntypedStorage.clone`, which asks the device for memory in a way of its own; `copy.deepcopy` uses it."""

    def clone(storage: Any) -> Any:
        if storage.device.type != NAME:
            return plain(storage)
        return _set(torch.empty(0, dtype=torch.uint8, device=storage.device), storage).clone().untyped_storage()

    return clone


#: A library takes its kernels with it when it goes.
_libraries: list[torch.library.Library] = []


@cache
def install() -> torch.device:
    """Takes the free place of PyTorch for the device, once and for the life of the process; returns the device."""
    backend_registration._setup_privateuseone_for_python_backend(NAME)
    everything, aten = (torch.library.Library(space, "IMPL", "PrivateUse1") for space in ("_", "aten"))
    _libraries.extend((everything, aten))
    everything.fallback(_kernel)
    kernels: dict[str, Callable[..., Any]] = {
        "_copy_from": _copy_from,
        "convolution_overrideable": _convolution,
        "convolution_backward_overrideable": _convolution_backward,
        "set_.source_Storage": _set,
        "set_.source_Storage_storage_offset": _set,
    }
    for name, function in kernels.items():
        aten.impl(name, function)
    # PyTorch would make these of others, as a device's own kernels do not: a result, filled by the form with `out=`.
    for name in torch._C._dispatch_get_registrations_for_dispatch_key("CompositeExplicitAutogradNonFunctional"):
        space, _, short = name.partition("::")
        if space == "aten":
            packet, _, overload = short.partition(".")
            op = getattr(getattr(torch.ops.aten, packet), overload or "default")
            aten.impl(short, lambda *a, op=op, **k: _kernel(op, *a, **k))
    torch.serialization.register_package(9, lambda _: None, _loaded)
    _autocasts()
    storages: Any = torch.storage._StorageBase
    storages.clone = _cloned(storages.clone)
    return torch.device(NAME, 0)
