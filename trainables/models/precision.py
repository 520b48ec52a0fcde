"""In which arithmetic models run: float32, or bfloat16 by autocast (`precision: bf16`).

Under bf16 a model's passes (its features, its head, a generator) take and give float32 and compute in bfloat16 inside;
the backward pass follows the forward one. Weights, losses, gradients of weights, optimisers and averages stay float32.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from search_spaces.errors import UserError, sentence

PRECISIONS = ("fp32", "bf16")

#: Names Linux gives to bfloat16 arithmetic: AMX and AVX-512 on x86, `bf16` on ARM.
_FLAGS = {"amx_bf16", "avx512_bf16", "bf16"}


def check(precision: str, device: torch.device) -> None:
    """Raises `UserError` where the device has no bfloat16 arithmetic; emulating it would be slower than float32."""
    if precision == "bf16" and not supported(device):
        what = "GPU" if device.type == "cuda" else "processor (no AMX, AVX512-BF16 or ARM BF16)"
        raise UserError(
            sentence(
                "precision",
                f"fp32 on this {what}, which has no bfloat16 arithmetic",
                precision,
                fix="Use --set precision=fp32.",
            )
        )


def supported(device: torch.device) -> bool:
    """Whether `device` computes in bfloat16 itself."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(_FLAGS & processor_flags())


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
