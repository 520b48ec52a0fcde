"""Is the best configuration that a table's model knows as good as the model says? Its federations, on fresh seeds.

A regret on a table of a continuous space is counted from the model's best configuration, which lies where nothing was
recorded. Where the model promises too much there, every searcher's regret is too large by as much, and a goal of one
point is none that a search could reach."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.measure import say
from benchmarks.page import table as rows_of
from benchmarks.replay.surrogate import Surrogate
from benchmarks.replay.table import complete
from benchmarks.tables.record import prepare, simulate
from benchmarks.tables.specs import FIRST_SEED, Spec

#: Fresh seeds, and how far they lie behind those of the table.
FRESH, BEHIND = 5, 1000


def measured(spec: Spec, world: Surrogate, fresh: int = FRESH) -> dict[str, Any]:
    """The model's best configuration, and the last test value of its federations; in units of the metric. One that
    diverges counts with the worst value of the table, as in a replay."""
    prepare()
    _, test = complete(world.table)
    worst, found = float(test.min()), []
    for place in range(fresh):
        last = simulate(spec, world.best_values, FIRST_SEED + BEHIND + place).test[-1] * world.table.sign
        found.append(worst if math.isnan(last) else last)
        say(f"  {spec.name}: federation {place + 1} of {fresh}: {100 * found[-1]:.1f}")
    return {
        "values": world.best_values,
        "model": world.best,
        "recorded": float(test.mean(axis=1)[:, -1].max()),
        "mean": float(np.mean(found)),
        "error": float(np.std(found, ddof=1) / math.sqrt(fresh)),
        "seeds": fresh,
    }


HEAD = """## The best configuration of a model

Regret is counted from the best configuration there is. On a table of a continuous space this is the one that the
table's model knows, and no recorded one. Here it is trained on seeds that are not recorded: the mean test metric of its
last round in per cent, with its standard error, beside the model's. What the model promises too much is in the regret
of all searchers alike: it changes nothing between them, and a goal of one point is out of reach by as much.
"""


def section(found: Mapping[str, Mapping[str, Any]]) -> str:
    """The page's part."""
    columns = ["table", "the model says", "measured", "best recorded mean", "when"]
    rows = []
    for name, one in found.items():
        m = one["machine"]
        said = f"{100 * one['mean']:.1f} ± {100 * one['error']:.1f} ({one['seeds']} seeds)"
        when = f"{m['date']}, revision {m['revision']}"
        rows.append([f"`{name}`", f"{100 * one['model']:.1f}", said, f"{100 * one['recorded']:.1f}", when])
    return f"{HEAD}\n{rows_of(columns, rows)}"
