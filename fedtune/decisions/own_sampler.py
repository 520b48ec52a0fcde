"""A sampler of a user's own: a Python file that is named in FEDTUNE_SAMPLERS and defines `propose`.

    def propose(history, space, rng):
        \"\"\"The values of the next trial by key.\"\"\"

history: the trials that the next one may look at, which have ended (`Finished`), in order. space: the
`search_spaces.space.Space`, whose `search` holds the searched dimensions by key. rng: a `random.Random` for this trial,
seeded by the search's seed and the trial's number. Where `propose` has a parameter `running`, it is given the values by
key of the configurations that are under way and not in the history. The proposal must depend on these alone: then the
same request gives the same trials, however many run at once and however often the search is interrupted.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fedtune.decisions.optuna_samplers import SAMPLERS
from fedtune.options import own_samplers
from search_spaces import own_files
from search_spaces.errors import UserError, sentence
from search_spaces.parameter import Value

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from search_spaces.space import Space


class Finished(NamedTuple):
    """A trial that has ended."""

    #: Its searched values by key.
    values: Mapping[str, Value]
    #: Its last value of each metric, mean over seeds, turned so that larger is better; None of one that failed or
    #: diverged, or that was stopped in a search for several metrics.
    results: tuple[float, ...] | None
    #: How many rounds it ran.
    rounds: int
    #: Whether it ran all its rounds; False of one that was stopped early.
    complete: bool


Propose = Callable[..., Mapping[str, Value]]


def load(name: str) -> Propose:
    """The function `propose` of the sampler of that name. Raises `UserError` where its file is not there, cannot be
    loaded or has none, and where fedtune has a sampler of that name."""
    path = own_samplers().get(name)
    if path is None:
        raise UserError(
            f"The sampler {name!r} is a file of a user's own, and FEDTUNE_SAMPLERS does not name it. Set it to the "
            f"path of {name}.py."
        )
    if name in SAMPLERS:
        must, fix = "a name that no sampler of fedtune has", "Rename the file."
        raise UserError(sentence(f"The sampler of {path.name}", must, name, "FEDTUNE_SAMPLERS", fix))
    try:
        module = own_files.load(path, f"fedtune_sampler_{name}", "FEDTUNE_SAMPLERS")
    except UserError:
        raise
    except own_files.RAISED as error:
        said = f"{path} cannot be loaded as a sampler: {type(error).__name__}: {error}."
        raise UserError(said + own_files.beside(error, path)) from error
    propose = getattr(module, "propose", None)
    if not callable(propose):
        raise UserError(f"{path} must define propose(history, space, rng), and does not.")
    made: Propose = propose
    return made


def proposed(
    propose: Propose,
    name: str,
    space: Space,
    known: Sequence[FrozenTrial],
    running: Sequence[FrozenTrial],
    signs: Sequence[float],
    rng: random.Random,
) -> FrozenTrial:
    """The next trial, running. known: what it may look at. running: the configurations that are under way. signs: 1 per
    metric that is maximised, -1 per one that is minimised. Raises `UserError` where the sampler fails or proposes what
    is not in the space."""
    from optuna.trial import TrialState, create_trial

    try:
        asks = "running" in inspect.signature(propose).parameters
        beside = {"running": [space.values(trial.params) for trial in running]} if asks else {}
        found: Any = propose([_finished(trial, space, signs) for trial in known], space, rng, **beside)
    except own_files.RAISED as error:
        raise UserError(f"The sampler {name} failed: {type(error).__name__}: {error}.") from error
    if not isinstance(found, Mapping):
        raise UserError(sentence(f"What {name} proposes", "a mapping of names to values", found))
    values = {str(key): getattr(value, "item", lambda value=value: value)() for key, value in found.items()}
    if not space.searches(values):
        raise UserError(
            f"The sampler {name} must propose a value of the space for each of {', '.join(space.search)}, got "
            f"{values!r}."
        )
    params, kinds = space.params(values), space.distributions()
    return create_trial(
        state=TrialState.RUNNING, params=dict(params), distributions={key: kinds[key] for key in params}
    )


def _finished(trial: FrozenTrial, space: Space, signs: Sequence[float]) -> Finished:
    last = trial.values or (
        [trial.intermediate_values[max(trial.intermediate_values)]] if trial.intermediate_values else None
    )
    failed = last is None or trial.state.name == "FAIL"
    return Finished(
        space.values(trial.params),
        None if failed or last is None else tuple(s * v for s, v in zip(signs, last, strict=True)),
        int(trial.user_attrs.get("rounds", 0)),
        trial.state.name == "COMPLETE",
    )
