"""Optuna's samplers, as fedtune sets them up, and the name of its own."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, get_args

from fedtune.options import Sampler
from fedtune.record.journal import quiet_optuna

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial


#: Expected improvement by the search's own model (`improvement.py`).
EI = "ei"
SAMPLERS: tuple[str, ...] = get_args(Sampler)

#: Random trials before Optuna's model-based samplers start. Fixed, so that a search of 20 extended by 20 is a search of
#: 40.
STARTUP = 6

#: Configurations per generation of NSGA-II; Optuna's 50 would leave a search of usual length at random.
POPULATION = 12


def usual(metrics: int) -> str:
    """The sampler of a search that optimises so many metrics, where the user names none."""
    return EI if metrics == 1 else "tpe"


@quiet_optuna()
def make_sampler(name: str, seed: int, number: int, taken: Sequence[FrozenTrial] = ()) -> BaseSampler:
    """The sampler of trial `number`. (`grid` proposes by itself and needs one only to exist; `ei` needs none.)

    `taken`: trials with results of earlier runs. All samplers are shown them as trials of the study; CMA-ES, which
    learns from trials of its own only, starts where they did well (Nomura et al. 2021, warm starting CMA-ES)."""
    import optuna

    digest = hashlib.blake2b(f"{seed}/{number}".encode(), digest_size=4).digest()
    own = int.from_bytes(digest, "big")
    if name == "tpe":
        return optuna.samplers.TPESampler(seed=own, n_startup_trials=STARTUP, group=True, multivariate=True)
    if name == "cmaes":
        return optuna.samplers.CmaEsSampler(
            seed=own,
            n_startup_trials=STARTUP,
            consider_pruned_trials=True,
            warn_independent_sampling=False,
            source_trials=_source(taken) or None,
        )
    if name == "gp":
        return optuna.samplers.GPSampler(seed=own, n_startup_trials=STARTUP, deterministic_objective=False)
    if name == "nsga2":
        return optuna.samplers.NSGAIISampler(seed=own, population_size=POPULATION)
    if name in ("random", "grid"):
        return optuna.samplers.RandomSampler(seed=own)
    raise ValueError(f"sampler {name!r}")


def _source(taken: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """The taken trials as CMA-ES starts from them: with only what it searches, numbers that have more than one value.

    It starts from the best tenth; fewer than ten are given several times, so that the best one is a tenth. None are
    given where a parameter belongs to an option of another one: which parameters CMA-ES searches then depends on the
    trials to come."""
    from optuna.distributions import CategoricalDistribution
    from optuna.trial import create_trial

    if any("." in name for trial in taken for name in trial.params):
        return []
    found = []
    for trial in taken:
        numbers = {
            name: distribution
            for name, distribution in trial.distributions.items()
            if not isinstance(distribution, CategoricalDistribution) and not distribution.single()
        }
        params = {name: trial.params[name] for name in numbers}
        found.append(create_trial(values=trial.values, params=params, distributions=numbers))
    return found * math.ceil(10 / max(1, len(found)))
