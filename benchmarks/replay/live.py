"""Is the model of a table true? A real search in the table's space, trial by trial beside what the model says of it.

Of the trials that ran to their end, whose configurations are none of the recorded ones and whose seed is another:

    shift      mean of (value - model's mean): what the one seed does to all configurations alike, and what the model
               gets wrong everywhere
    error      standard deviation of the same difference: what the model gets wrong in places, and the noise that a
               configuration has of its own
    expected   the same by the model's word: the error on configurations left out, of whose means a part is noise as
               well, and the own noise of one seed, as root of the sum of squares
    rank       Spearman's correlation of values and model's means

and of the search's winner, trained on fresh seeds: its mean there and the model's, with the standard error."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.page import table as rows_of
from benchmarks.replay.surrogate import Surrogate
from benchmarks.tables.record import prepare, simulate
from benchmarks.tables.specs import FIRST_SEED, Spec
from search_spaces.parameter import Value

#: Trials of a live search, and fresh seeds of its winner.
TRIALS, FRESH = 30, 5
#: The seed of configurations that are drawn, behind those of all tables; the fresh ones follow.
SEED = FIRST_SEED + 2000


def live(spec: Spec, world: Surrogate, folder: Path, *, trials: int = TRIALS, fresh: int = FRESH) -> dict[str, Any]:
    """A search of `spec`'s space with the defaults of `fedtune search`, without early stopping, so that every trial has
    an end to compare; its winner on fresh seeds; both beside the model. The runs lie in `folder`, which has none yet of
    that name."""
    import fedtune

    method, preset = spec.methods[0]
    settings = {key: value for key, value in spec.settings().items() if key != "rounds"}
    found = fedtune.search(
        method,
        space=preset,
        set=settings,
        rounds=spec.rounds,
        metric=spec.metric,
        trials=trials,
        scheduler="none",
        name=folder / f"live-{spec.name}",
        plain=True,
    )
    run = fedtune.load(found.folder)
    ended = run.trials[run.trials["state"] == "COMPLETE"]
    keys = list(spec.space.search)
    measured = [({key: row[key] for key in keys}, float(row["value"])) for _, row in ended.iterrows()]
    final = fedtune.run(found.folder, seeds=fresh, name=folder / f"live-{spec.name}-final", plain=True)
    last = fedtune.load(final.folder).trials["value"]
    return compared(world, measured) | {"winner": winner(world, run.best.params, [float(v) for v in last])}


def drawn(spec: Spec, world: Surrogate, *, trials: int = TRIALS, fresh: int = FRESH) -> dict[str, Any]:
    """The same of a table whose space chooses among methods, which `fedtune search` does not: in place of a search the
    configurations that would have been drawn after the recorded ones, each simulated on one seed."""
    prepare()
    points = spec.points(spec.configurations + trials)[spec.configurations :]
    ends = [(values, world.table.sign * simulate(spec, values, SEED).validation[-1]) for values in points]
    measured = [(values, end) for values, end in ends if math.isfinite(end)]
    best, _ = max(measured, key=lambda one: one[1])
    last = [world.table.sign * simulate(spec, best, SEED + 1 + place).validation[-1] for place in range(fresh)]
    return compared(world, measured) | {"winner": winner(world, best, last)}


def compared(world: Surrogate, ended: Sequence[tuple[Mapping[str, Value], float]]) -> dict[str, Any]:
    """Values of a search's trials beside the model's means; in units of the metric."""
    from scipy.stats import spearmanr

    last = world.rounds - 1
    values = np.array([value for _, value in ended])
    means = np.array([world.at(values).true[last] for values, _ in ended])
    own = np.array([world.at(values).sigma for values, _ in ended]) ** 2 * world.noise.own[last, last]
    apart = values - means
    return {
        "trials": len(ended),
        "shift": float(apart.mean()),
        "error": float(apart.std(ddof=1)),
        "expected": math.sqrt(world.fit.error**2 + float(own.mean())),
        "rank": float(spearmanr(values, means).statistic),
    }


def winner(world: Surrogate, values: Mapping[str, Value], fresh: Sequence[float]) -> dict[str, Any]:
    """The winner's mean on fresh seeds, its standard error, and the model's mean."""
    return {
        "mean": float(np.mean(fresh)),
        "error": float(np.std(fresh, ddof=1) / math.sqrt(len(fresh))),
        "model": float(world.at(values).true[world.rounds - 1]),
        "seeds": len(fresh),
    }


HEAD = """## Models beside live searches

A table of a continuous space answers through a model of its recorded curves. Here a real search of that space, every
trial to its end on a seed that is not recorded, is set beside the model, in points. *Shift* is the mean of value minus
model, which has what one seed does to all configurations alike; *error* the standard deviation of the same, and
*expected* what the model itself says it should be. The space of `mixed` chooses among methods, which no search of one
method does: in place of a search it has configurations drawn at random. `dfrd_alpha_lambda` needs no model.
"""


def section(found: Mapping[str, Mapping[str, Any]]) -> str:
    """The page's part."""
    columns = ["table", "trials", "shift", "error", "expected", "rank correlation", "winner on fresh seeds", "model"]
    columns += ["when"]
    rows = []
    for name, one in found.items():
        best = one["winner"]
        points = [f"{100 * one[key]:+.1f}" if key == "shift" else f"{100 * one[key]:.1f}" for key in columns[2:5]]
        said = f"{100 * best['mean']:.1f} ± {100 * best['error']:.1f} ({best['seeds']} seeds)"
        m = one["machine"]
        when = f"{m['date']}, revision {m['revision']}"
        rank, model = f"{one['rank']:.2f}", f"{100 * best['model']:.1f}"
        rows.append([f"`{name}`", str(one["trials"]), *points, rank, said, model, when])
    return f"{HEAD}\n{rows_of(columns, rows)}"
