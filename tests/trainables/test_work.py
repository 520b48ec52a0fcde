"""What a computation costs is counted the same on every machine, and that costs little itself."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch

from trainables.work import counting


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_multiply_adds_are_counted(mode: Any) -> None:
    x = torch.ones(2, 3, 8, 8)
    conv, linear = torch.nn.Conv2d(3, 5, 3, padding=1), torch.nn.Linear(5, 7)
    with mode(), counting() as found:
        linear(conv(x).mean(dim=(2, 3)))
    assert found.multiply_adds == 2 * 8 * 8 * 5 * 3 * 9 + 2 * 5 * 7
    assert found.operations >= 3


def test_counting_brings_no_compiler() -> None:
    """PyTorch takes its compiler's modules in, which is more than a second, before it leaves a mode out of what is
    compiled. In a process of its own, as that of a test has them already."""
    program = """
import sys, torch
from trainables.work import counting
with counting() as found:
    torch.ones(3, 4) @ torch.ones(4, 5)
assert found.multiply_adds == 60
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
