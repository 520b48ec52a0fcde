"""In which arithmetic models run: float32, TF32 (`precision: tf32`), or bfloat16 by autocast (`precision: bf16`).

Under bf16 a model's passes (its features, its head, a generator) take and give float32 and compute in bfloat16 inside;
the backward pass follows the forward one. Weights, losses, gradients of weights, optimisers and averages stay float32.
Under tf32 all stays float32, and a GPU's matrix products and convolutions round what they multiply to 10 bits.

`auto` is fp32 on a processor. On a GPU it may be another for models with convolutions whose step fills the GPU; by what
is known of model and GPU, not by a clock, and only what has passed a paired test over seeds (`JUDGED`).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from search_spaces.errors import UserError, sentence

PRECISIONS = ("fp32", "tf32", "bf16", "auto")
#: What `auto` may take, the fastest first, and the compute capability of a GPU (Ampere) from which it has both.
FASTER, NEEDED = ("bf16", "tf32"), (8, 0)
#: Those of them that have passed the paired test over seeds of `make bench-gpu` on a GPU. None has yet: no record of it
#: exists, so `auto` is fp32 everywhere.
JUDGED: frozenset[str] = frozenset()

#: Names Linux gives to bfloat16 arithmetic: AMX and AVX-512 on x86, `bf16` on ARM.
_FLAGS = {"amx_bf16", "avx512_bf16", "bf16"}


def check(precision: str, device: torch.device) -> None:
    """Raises `UserError` where the device lacks that arithmetic; emulating bfloat16 would be slower than float32, and
    TF32 would be ignored."""
    gpu = device.type != "cpu"
    if precision == "bf16" and not supported(device):
        what = "GPU" if gpu else "processor (no AMX, AVX512-BF16 or ARM BF16)"
        lacks = "bfloat16"
    elif precision == "tf32" and capability(device) < NEEDED:
        what = "GPU (of compute capability below 8.0)" if gpu else "processor"
        lacks = "TF32"
    else:
        return
    must = f"fp32 on this {what}, which has no {lacks} arithmetic"
    raise UserError(sentence("precision", must, precision, fix="Use --set precision=fp32."))


def chosen(device: torch.device, *, convolutions: bool, fills: bool) -> str:
    """What `auto` means on `device` for a model with or without `convolutions`, a step of which `fills` a GPU or
    leaves it waiting for the processor."""
    if not (convolutions and fills) or capability(device) < NEEDED:
        return "fp32"
    return next((precision for precision in FASTER if precision in JUDGED), "fp32")


def capability(device: torch.device) -> tuple[int, int]:
    """The compute capability of a GPU of NVIDIA's, (0, 0) of everything else."""
    if device.type != "cuda" or torch.version.hip is not None:
        return 0, 0
    return torch.cuda.get_device_capability(device)


@contextlib.contextmanager
def arithmetic(precision: str) -> Iterator[None]:
    """Within, matrix products and convolutions on a GPU are in TF32 if that is the precision, and as before else. A
    backward pass has no precision of its own, so it must be within too."""
    if precision != "tf32":
        yield
        return
    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    before = products.allow_tf32, convolutions.allow_tf32
    products.allow_tf32 = convolutions.allow_tf32 = True
    try:
        yield
    finally:
        products.allow_tf32, convolutions.allow_tf32 = before


def supported(device: torch.device) -> bool:
    """Whether `device` computes in bfloat16 itself."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(_FLAGS & processor_flags())


def multiplies_bfloat16() -> bool:
    """Whether the processor has AMX, with which it multiplies bfloat16 several times as fast as float32."""
    return "amx_bf16" in processor_flags()


@functools.cache
def processor_flags() -> frozenset[str]:
    """What the processor can do, as Linux lists it; empty on other systems."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    return frozenset(
        flag
        for line in lines
        if line.lower().startswith(("flags", "features"))
        for flag in line.partition(":")[2].split()
    )


def lower(module: nn.Module, device: torch.device) -> None:
    """Makes the passes of `module`, a model or a generator, run in bfloat16."""
    if hasattr(module, "features"):  # a model: its two halves are also called one by one
        setattr(module, "features", _lowered(cast(Callable[..., Tensor], module.features), device.type))  # noqa: B010 (mypy takes it for a submodule)
        assert isinstance(module.head, nn.Module)
        module = module.head
    module.forward = _lowered(module.forward, device.type)


def _lowered(run: Callable[..., Any], device: str) -> Callable[..., Tensor]:
    @functools.wraps(run)
    def run_lowered(*inputs: Tensor) -> Tensor:
        # Nothing is used twice within a pass, and a cache of cast weights would outlive vmap's.
        with torch.autocast(device, dtype=torch.bfloat16, cache_enabled=False):
            made: Tensor = run(*inputs)
        return made.float()

    return run_lowered
