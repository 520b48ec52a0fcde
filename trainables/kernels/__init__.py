"""The same numbers as PyTorch's own operations, faster on a CPU. Each file holds or names a plain reference that a test
compares it with."""

import torch
from torch import Tensor


def on_a_cpu(x: Tensor) -> bool:
    """Whether the operation is one of float32 or wider on a CPU, outside of PyTorch's `vmap`: there a kernel may take
    the place of PyTorch's."""
    reduced = torch.is_autocast_enabled("cpu")
    return x.device.type == "cpu" and not reduced and not torch._C._are_functorch_transforms_active()
