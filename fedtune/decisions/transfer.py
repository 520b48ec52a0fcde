"""What one method's best configuration teaches another: a trial with its values of the parameters that both search.

A learning rate or a number of local steps that is good for one method is often good for another. So while a better
configuration is known of another method, a trial of this one has its own best configuration (its paper's values, as
long as it has no other), in which every parameter that the better one has as well takes the value from there, as far as
this method's space holds it. Where the method has had that configuration already, its sampler proposes the trial.

Every method is taught by this rule, so it favours none. It costs nothing and looks at no more than a sampler does:
trials that the next one may see.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fedtune.decisions.known_points import Point
from search_spaces.metrics import is_unreached
from search_spaces.parameter import Value

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from search_spaces.space import Space


def taught(
    space: Space,
    had: Sequence[FrozenTrial],
    known: Sequence[FrozenTrial],
    seen: Sequence[tuple[Space, FrozenTrial]],
    sign: float,
) -> Point | None:
    """The next trial of the method with this space; None where there is nothing to be taught.

    had: the method's trials, those that run included. known: those of them that the next one may look at; seen: all
    that it may look at, of every method. sign: 1 where more is better, -1 where less is."""
    good = [(of, trial) for of, trial in seen if _whole(trial) and not is_unreached(trial.values[0])]
    best = max(good, key=lambda item: sign * item[1].values[0], default=None)
    own = max((t for t in known if _whole(t)), key=lambda t: sign * t.values[0], default=None)
    if best is None or own is None or sign * own.values[0] >= sign * best[1].values[0]:
        return None
    values = _mixed(space, space.values(own.params), best[0].values(best[1].params))
    if any(space.values(trial.params) == values for trial in had):
        return None
    return Point(values, f"the best configuration of {best[0].method}")


def _whole(trial: FrozenTrial) -> bool:
    """Whether a trial ran to its end."""
    return trial.state.name == "COMPLETE"


def _mixed(space: Space, own: Mapping[str, Value], given: Mapping[str, Value]) -> dict[str, Value]:
    """`own` with what is `given`, one parameter after the other, where the result is still a point of the space."""
    values = dict(own)
    for key in own:
        changed = values | {key: given.get(key, own[key])}
        values = changed if space.searches(changed) else values
    return values
