"""An Adam whose steps are a smooth function of the gradient, for comparing ways of computing one job.

Adam divides every entry of the gradient by its own size plus `eps`. Where an entry is about as small as the default
eps, 1e-8, its rounding decides the step, and one such entry weighs more than the rounding of all others. No bound on
rounding holds there, as none holds at a ReLU's zero (`tests/exact.py`). With an eps above most entries a step is nearly
proportional to the gradient. All ways of computing a job are given the same eps.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

EPS = 1e-2


def smooth_adam() -> None:
    """From now on `torch.optim.Adam`, and what inherits from it, has this eps where none is given."""
    start = torch.optim.Adam.__init__

    @functools.wraps(start)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        start(self, *args, **{"eps": EPS, **kwargs})

    torch.optim.Adam.__init__ = init  # type: ignore[method-assign]
