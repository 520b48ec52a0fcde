"""An optimiser's state as named tensors, for optimisers that outlive the round (a client's persistent generator).

Names are `<place of the parameter>/<quantity>`, for Adam `0/step`, `0/exp_avg`, `0/exp_avg_sq`, `1/step`, …
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor
from torch.optim import Optimizer


def take_state(optimiser: Optimizer) -> dict[str, Tensor]:
    """A copy of the state; empty before the first step."""
    state = optimiser.state_dict()["state"]
    return {f"{place}/{name}": tensor.detach().clone() for place, quantities in state.items() for name, tensor in quantities.items()}


def put_state(optimiser: Optimizer, saved: Mapping[str, Tensor]) -> None:
    """Continues from a state that `take_state` copied from an optimiser of the same parameters; `saved` is not aliased."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in saved.items():
        place, name = key.split("/", 1)
        state.setdefault(int(place), {})[name] = tensor.detach().clone()
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
