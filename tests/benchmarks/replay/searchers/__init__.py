"""The searchers, by name. A factory takes a `Setting`, and raises `Impossible` where the setting is not for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.benchmarks.replay.searcher import Searcher, Setting
from tests.benchmarks.replay.searchers import plain
from tests.benchmarks.replay.searchers.optuna_study import GP, PRUNERS, TPE, OptunaStudy
from tests.benchmarks.replay.searchers.oracle import Told
from tests.benchmarks.replay.searchers.present import Present

Factory = Callable[[Setting], Searcher]

SEARCHERS: dict[str, Factory] = {
    **{f"random-{k}": partial(plain.Random, each=k) for k in (1, 3, 5)},
    **{f"grid-{k}": partial(plain.Grid, each=k) for k in (1, 3, 5)},
    **{f"fedtune-{k}": partial(Present, each=k) for k in (1, 3)},
    **{f"optuna-tpe-{pruner}": partial(OptunaStudy, sampler=TPE, pruner=pruner) for pruner in PRUNERS},
    **{f"optuna-gp-{pruner}": partial(OptunaStudy, sampler=GP, pruner=pruner) for pruner in PRUNERS},
    "oracle-random": lambda setting: Told(plain.Random(setting, each=1), setting),
    "oracle-fedtune": lambda setting: Told(Present(setting, each=1), setting),
}

#: Those whose proposals take seconds; they take part when they are named, or with --all.
SLOW = tuple(name for name in SEARCHERS if name.startswith("optuna-gp"))

#: What is replayed nowhere yet: a peer of the plan whose arm has not been written.
MISSING = {
    "Ray Tune's OptunaSearch with ASHA": "its arm has not been written",
    "Syne Tune (ASHA with random, KDE, BORE, conformal quantile regression)": "its arm has not been written",
    "SMAC3 (multi-fidelity facade, intensification over seeds)": "its arm has not been written",
}
