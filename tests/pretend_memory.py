"""Tensors of the pretend device over the processor's memory, and back: nothing is copied.

    device = on_device(torch.zeros(3))      on_cpu(device).add_(1)      # both are 1 now

A tensor of a device that PyTorch does not know is made by DLPack, which PyTorch takes such memory from; the processor's
tensor over the same memory by the address of its storage. Views of a device's tensor are views to PyTorch as well, with
their place in the storage, as autograd needs it.
"""

from __future__ import annotations

import ctypes
import threading

import torch
from torch import Tensor


class _DLTensor(ctypes.Structure):
    """DLPack's description of a tensor (`DLManagedTensor`), by which PyTorch makes one over given memory."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


#: DLPack's code for a device that it does not know either.
_EXTENSION = 12
_CODES = {
    torch.int8: (0, 8),
    torch.int16: (0, 16),
    torch.int32: (0, 32),
    torch.int64: (0, 64),
    torch.uint8: (1, 8),
    torch.float16: (2, 16),
    torch.float32: (2, 32),
    torch.float64: (2, 64),
    torch.bfloat16: (4, 16),
    torch.bool: (6, 8),
}
# PyTorch reads it once for every tensor, and at the tensor's end whether there is a deleter: it must outlive them all.
_described = _DLTensor(device_type=_EXTENSION, lanes=1)
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_described))
_one_at_a_time = threading.Lock()
_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype, _capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


def on_device(tensor: Tensor) -> Tensor:
    """A tensor of the device over the memory of the processor's `tensor`, which it keeps alive."""
    n = tensor.dim()
    numbers = ctypes.c_int64 * max(n, 1)
    shape, strides = numbers(*tensor.shape), numbers(*tensor.stride())
    d = _described
    with _one_at_a_time:
        d.data, d.ndim = tensor.data_ptr(), n
        d.code, d.bits = _CODES[tensor.dtype]
        d.shape, d.strides = ctypes.addressof(shape), ctypes.addressof(strides)
        made: Tensor = torch._C._from_dlpack(_capsule(ctypes.addressof(d), b"dltensor", None))  # type: ignore[attr-defined]
    made.untyped_storage().owner = tensor  # type: ignore[attr-defined]
    return made


def on_cpu(tensor: Tensor) -> Tensor:
    """The same memory as a tensor of the processor."""
    storage = tensor.untyped_storage()
    if not storage.nbytes():
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    memory = torch._C._construct_storage_from_data_pointer(storage.data_ptr(), torch.device("cpu"), storage.nbytes())  # type: ignore[attr-defined]
    return torch.empty(0, dtype=tensor.dtype).set_(memory, tensor.storage_offset(), tensor.shape, tensor.stride())


METADATA = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)


def view(base: Tensor, like: Tensor) -> Tensor:
    """The part of the device's `base` that the processor's view `like` shows of the same memory."""
    made: Tensor = torch.ops.aten.as_strided.default.redispatch(
        METADATA, base, like.shape, like.stride(), like.storage_offset()
    )
    return made
