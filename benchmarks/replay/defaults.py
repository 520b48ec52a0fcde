"""The defaults of `fedtune search`, each against what it could be: one default changed at a time, on every table.

    score       a search's regret, averaged over budgets and repetitions, in per cent of a blind choice's
    difference  score with the change minus score of the defaults, over repetitions that had the same draws

Three tables decide and two only report, so that what is read there was not chosen by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.page import table
from benchmarks.replay.bench import BUDGETS, SLOTS, as_data, episodes, replay_of
from benchmarks.replay.cells import made, points
from benchmarks.replay.measures import Judged, over
from benchmarks.replay.pool import Task, every, replayed
from benchmarks.replay.searcher import Floats, Setting
from benchmarks.replay.searchers import Factory
from benchmarks.replay.searchers.present import Present
from benchmarks.replay.searchers.racing import Racing
from benchmarks.replay.searchers.thawing import Thawing
from benchmarks.replay.table import Table
from fedtune.decisions import expected_improvement

#: The tables by which a default may be changed, and those that only report.
DECIDING, REPORTING = ("dfrd_alpha_lambda", "fedavg", "mixed"), ("dfrd_full", "fedkf")
PRESENT = "as it is"


class Startup(Present):
    """fedtune's search with another number of trials at random before the model is asked."""

    def __init__(self, setting: Setting, *, startup: int) -> None:
        super().__init__(setting, each=1)
        self.startup = startup

    def propose(self) -> Any:
        with mock.patch.object(expected_improvement, "FEWEST", self.startup):
            return super().propose()


def _changed(**changes: Any) -> Factory:
    return partial(Present, each=1, **changes)


#: One seed and every default, and then one change each.
VARIANTS: dict[str, Factory] = {
    PRESENT: _changed(),
    "--sampler tpe": _changed(sampler="tpe"),
    "--sampler random": _changed(sampler="random"),
    "--sampler nsga2": _changed(sampler="nsga2"),
    "6 start-up trials": partial(Startup, startup=6),
    "12 start-up trials": partial(Startup, startup=12),
    "--reduction-factor 2": _changed(reduction_factor=2),
    "--reduction-factor 4": _changed(reduction_factor=4),
    "--grace 1": _changed(grace=1),
    "--grace 2": _changed(grace=2),
    "--scheduler median": _changed(scheduler="median"),
    "--scheduler none": _changed(scheduler="none"),
    "stopped trials may go on": Thawing,
    "--race": Racing,
    "--seeds 3 --no-race": partial(Present, each=3),
}


def replay(given: Table, task: Task) -> list[Judged]:
    """One repetition of a variant, judged at every budget. Raises `Impossible`."""
    return replay_of(VARIANTS[task.searcher], given, task)


def measure(given: Mapping[str, Table], *, repetitions: int, processes: int) -> dict[str, Any]:
    """Every variant on the tables that are there, and what came of it as plain data."""
    used = {name: given[name] for name in (*DECIDING, *REPORTING) if name in given}
    result = replayed(used, every(used, list(VARIANTS), repetitions, SLOTS, BUDGETS), processes, replay)
    scores = {
        (name, variant): _scores(one, result.found[name, variant, SLOTS])
        for name, one in used.items()
        for variant in VARIANTS
        if result.found[name, variant, SLOTS]
    }
    return {
        "repetitions": repetitions,
        "slots": SLOTS,
        "seconds": round(result.seconds),
        "processes": processes,
        "tables": list(used),
        "variants": {variant: _summary(scores, variant, list(used)) for variant in VARIANTS},
    }


def _scores(given: Table, repetitions: Sequence[Sequence[Judged]]) -> Floats:
    """By repetition: the mean regret over budgets, as a share of the mean regret of a blind choice."""
    blind = float(np.mean([episode.best - episode.blind for episode in episodes(given, len(repetitions))]))
    return np.array([np.mean([judged.regret for judged in one]) for one in repetitions]) / blind


def _summary(scores: Mapping[tuple[str, str], Floats], variant: str, names: Sequence[str]) -> dict[str, Any]:
    """A variant's score on each table and its difference from the defaults, on each and over the two groups."""
    on = [name for name in names if (name, variant) in scores]
    differences = {name: scores[name, variant] - scores[name, PRESENT] for name in on}
    groups = {
        title: [differences[name] for name in group if name in differences]
        for title, group in (("deciding", DECIDING), ("reporting", REPORTING))
    }
    return {
        "score": {name: as_data(over(list(scores[name, variant]), np.mean)) for name in on},
        "difference": {name: as_data(over(list(values), np.mean)) for name, values in differences.items()},
        **{
            title: as_data(over(list(np.mean(several, axis=0)), np.mean)) if several else None
            for title, several in groups.items()
        },
    }


HEAD = """## Defaults

Each default of `fedtune search` against what it could be, one changed at a time: the mean regret over all budgets
above, in per cent of a blind choice's, and by how much the change moves it (below zero: better), with an interval of
90 % over repetitions with the same draws. {deciding} decide whether a default is changed; {reporting} report. Two
choices were made with a look at those that report: that the sampler `ei` draws its candidates uniformly, on
`dfrd_full`, and that the first trials wait for more than the lag says, on both. For these two they are not held out.
"""
_GROUPS = ("deciding", "reporting")
#: What was made of these figures, by the revision at which they were measured.
MADE_OF = {
    "b572122": """No other setting is told to be better over the three tables that decide, so the defaults stay. Over
these, `ei` is not told from `tpe` or `random` either: it is told to be better on `fedavg`, and worse than random
proposals on `dfrd_alpha_lambda`, where one seed's noise is five times what lies between cells, and all scores are near
a blind choice's. On the tables that only report it is told to be better than both;
[how configurations are proposed](proposals.md#whether-it-pays) says more. More trials at random before the model is
asked are better on `dfrd_alpha_lambda`, twelve on `mixed` too, and worse on `fedavg` and on those that report. That the
first ten trials wait for more than the lag of four says (the row `--lag 4`) is told to be better on `fedavg` alone of
those that decide, and it
[takes time](proposals.md#what-a-trial-is-proposed-from) where more than one trial can run. `--grace 1` was
better with `tpe`; with `ei` it is not told from the third round.
"""
}


def section(found: Mapping[str, Any]) -> str:
    """The page's part."""
    names = found["tables"]
    rows = []
    for variant, one in found["variants"].items():
        first = [f"`{variant}`" if variant.startswith("--") else variant]
        cells = [points(one["score"][name], digits=0) if name in one["score"] else "–" for name in names]
        last = ["–" if variant == PRESENT or one[group] is None else points(one[group]) for group in _GROUPS]
        rows.append([*first, *cells, *last])
    deciding, reporting = (" and ".join(f"`{n}`" for n in names if n in group) for group in (DECIDING, REPORTING))
    return "\n".join(
        [
            HEAD.format(deciding=deciding, reporting=reporting),
            made(found),
            table(["search", *names, "change on those that decide", "change on the others"], rows),
            *([MADE_OF[revision]] if (revision := found["machine"]["revision"]) in MADE_OF else []),
        ]
    )
