"""The searchers, by name. A factory takes a `Setting`, and raises `Impossible` where the setting is not for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks.replay.peer import ENVIRONMENTS, Peer
from benchmarks.replay.searcher import Searcher, Setting
from benchmarks.replay.searchers import plain
from benchmarks.replay.searchers.optuna_study import GP, PRUNERS, TPE, OptunaStudy
from benchmarks.replay.searchers.oracle import Told
from benchmarks.replay.searchers.present import Present
from benchmarks.replay.searchers.racing import Racing
from benchmarks.replay.searchers.ray_tune import RayTune

Factory = Callable[[Setting], Searcher]


def arm(package: str, name: str) -> Factory:
    """A searcher of another package, by the name that its arm knows it by."""
    module = f"benchmarks.replay.arms.{package.replace('-', '_')}_arm"
    return partial(Peer, command=(str(ENVIRONMENTS / package / "bin" / "python"), "-m", module), name=name)


#: ASHA with these searchers, by the names that Syne Tune gives them.
_SYNE_TUNE = {"random": "random_search", "kde": "kde", "bore": "bore", "cqr": "cqr"}

SEARCHERS: dict[str, Factory] = {
    **{f"random-{k}": partial(plain.Random, each=k) for k in (1, 3, 5)},
    **{f"grid-{k}": partial(plain.Grid, each=k) for k in (1, 3, 5)},
    **{f"fedtune-{k}": partial(Present, each=k) for k in (1, 3)},
    "fedtune-race": Racing,
    "fedtune-race-3": partial(Racing, most=3),
    **{f"fedtune-1-confirmed-{whole}": partial(Racing, most=1, whole=whole) for whole in (12, 36, 40)},
    "fedtune-race-confirmed-40": partial(Racing, whole=40),
    "fedtune-1-tpe": partial(Present, each=1, sampler="tpe"),
    **{f"optuna-tpe-{pruner}": partial(OptunaStudy, sampler=TPE, pruner=pruner) for pruner in PRUNERS},
    **{f"optuna-gp-{pruner}": partial(OptunaStudy, sampler=GP, pruner=pruner) for pruner in PRUNERS},
    "ray-tune-optuna": RayTune,
    **{f"syne-tune-{name}": arm("syne-tune", own) for name, own in _SYNE_TUNE.items()},
    **{f"smac-{name}": arm("smac", name) for name in ("race", "hyperband")},
    **{f"neps-{name}": arm("neps", name) for name in ("priorband", "priorband-high")},
    "oracle-random": lambda setting: Told(plain.Random(setting, each=1), setting),
    "oracle-fedtune": lambda setting: Told(Present(setting, each=1), setting),
}

#: Those that run in environments of their own; they take part when they are named, or with --peers.
PEERS = tuple(name for name in SEARCHERS if name.startswith(("syne-tune-", "smac-", "neps-")))
#: Those whose proposals may take seconds; they take part when they are named, or with --slow.
SLOW = tuple(name for name in SEARCHERS if name.startswith("optuna-gp"))
