"""What this process needs before it plans or drives trials."""

from __future__ import annotations

from fedtune.machine.limits import check_limits
from fedtune.machine.working_directory import load_torch


def ready() -> None:
    """Checks the limits of this process, then loads PyTorch. Raises `UserError` where a limit is too low."""
    check_limits()
    load_torch()
