"""What is known before a search begins: the paper's own values.

They are trial 0 wherever they lie in the searched space, so a search never ends below what it could have had without
searching. A grid search visits all its cells anyway and is left as it is.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from fedtune.record.experiment import Experiment
from fedtune.trials.known_points import PAPER
from search_spaces.space import Space


@dataclass(frozen=True)
class Known:
    """An experiment with what is known, and what the user is told of it."""

    experiment: Experiment
    notes: tuple[str, ...] = ()


def known(experiment: Experiment, space: Space) -> Known:
    """`experiment`, which searches `space`, with what is known of it."""
    paper = None if experiment.sampler == "grid" else space.declared_point()
    if paper is None:
        return Known(experiment)
    shown = ", ".join(
        f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}" for key, value in paper.items()
    )
    first = ({"from": PAPER, "values": paper},)
    return Known(dataclasses.replace(experiment, first=first), (f"Trial 0 has the paper's values: {shown}.",))
