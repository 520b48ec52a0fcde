"""Optuna's samplers, as fedtune sets them up."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler


SAMPLERS = ("tpe", "random", "grid", "cmaes", "gp", "nsga2")

#: Random trials before a model-based sampler starts. Fixed, so that a search of 20 extended by 20 is a search of 40.
STARTUP = 6

#: Configurations per generation of NSGA-II; Optuna's 50 would leave a search of usual length at random.
POPULATION = 12


def make_sampler(name: str, seed: int, number: int) -> BaseSampler:
    """The sampler of trial `number`. (`grid` proposes by itself and needs one only to exist.)"""
    import optuna

    digest = hashlib.blake2b(f"{seed}/{number}".encode(), digest_size=4).digest()
    own = int.from_bytes(digest, "big")
    if name == "tpe":
        return optuna.samplers.TPESampler(seed=own, n_startup_trials=STARTUP, group=True, multivariate=True)
    if name == "cmaes":
        return optuna.samplers.CmaEsSampler(
            seed=own, n_startup_trials=STARTUP, consider_pruned_trials=True, warn_independent_sampling=False
        )
    if name == "gp":
        return optuna.samplers.GPSampler(seed=own, n_startup_trials=STARTUP, deterministic_objective=False)
    if name == "nsga2":
        return optuna.samplers.NSGAIISampler(seed=own, population_size=POPULATION)
    if name in ("random", "grid"):
        return optuna.samplers.RandomSampler(seed=own)
    raise ValueError(f"sampler {name!r}")
