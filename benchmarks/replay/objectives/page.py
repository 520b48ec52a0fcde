"""The section of docs/search-quality.md on several objectives; nothing of it is written by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.page import table
from benchmarks.replay.kept import whens
from benchmarks.replay.objectives.searchers import OURS, SEARCHERS
from benchmarks.replay.page import points

HEAD = """## Several objectives

Searches with several objectives, on the recorded configurations (a proposal becomes the nearest of them). A searcher names a front:
of the trials that ran all their rounds, those that no other one beats. **Hypervolume** is what the named configurations dominate by
their mean test metrics over seeds that the search never saw, measured from the worst recorded configuration in every metric, as a
share of what all recorded configurations dominate: 100 is the true front. Medians over repetitions, with the interval that holds
the median with a probability of 90 %, after budgets in federations (in seed-rounds). **Mean** is the mean over these budgets,
**tried** the hypervolume of all that was tried at the largest budget, and **named** how many configurations the front has then.
**Lead** is by how much the mean of `fedtune-1` is above this searcher's, repetition by repetition on the same seeds: a mean, with
the interval that holds it with a probability of 90 %.

| searcher | what it does |
|---|---|
| `random-1` | configurations at random, each to its end |
| `fedtune-k` | `fedtune search --seeds k` with a `--metric` per objective, as it stands: TPE, and asynchronous halving by Pareto fronts |
| `fedtune-1-nsga2`, `fedtune-1-random` | the same with `--sampler nsga2` or `random` |
| `fedtune-1-complete` | the same with `--scheduler none`: every trial runs all its rounds |
| `optuna-tpe`, `optuna-nsga2` | Optuna's samplers for several objectives with their defaults; Optuna stops no trial of such a study |
| `optuna-nsga2-12` | the same NSGA-II with a population of 12 in place of 50, which no budget here fills |
| `syne-tune-moasha` | Syne Tune's MOASHA: configurations at random, asynchronous halving by non-dominated sorting; `make bench-search-peers` |
| `oracle-…` | the same proposals, told the test metrics' true means in place of noisy values |
"""

NOT_YET = "Not measured yet: no table is recorded that keeps several validation metrics.\n"


def section(found: Mapping[str, Any]) -> str:
    """The whole section, from what `objectives.bench.measure` gave; {} where nothing was measured."""
    if not found.get("tables"):
        return "\n".join([HEAD, NOT_YET])
    there = {name for entry in found["tables"].values() for name in entry["searchers"]}
    missing = [f"- `{name}`: not replayed this time." for name in SEARCHERS if name not in there]
    parts = [HEAD, whens(found)]
    parts += [_table(found, name) for name in found["tables"]]
    return "\n".join([*parts, *("\n".join([*missing, ""]) for _ in missing[:1])])


def _table(found: Mapping[str, Any], name: str) -> str:
    entry = found["tables"][name]
    budgets = [f"{b} ({b * entry['rounds']})" for b in found["budgets"]]
    blind = f"{100 * entry['blind']:.1f}"
    rows: list[Sequence[Any]] = [["one at random", *([blind] * (len(budgets) + 1)), "–", "–", "–"]]
    for searcher, one in _possible(entry).items():
        volumes = [points(b["volume"]) for b in one["budgets"]]
        lead = "–" if searcher == OURS else points(one["lead"])
        rows.append([f"`{searcher}`", *volumes, points(one["mean"]), lead, points(one["tried"]), f"{one['named']:.1f}"])
    dashes = [f"`{s}`: {e['impossible']}." for s, e in entry["searchers"].items() if "impossible" in e]
    return "\n".join(
        [
            f"### Several objectives: {name}\n",
            entry["text"] + "\n",
            table(["searcher", *budgets, "mean", "lead", "tried", "named"], rows),
            *([_best(entry)] if _possible(entry) else []),
            *(f"{line}\n" for line in dashes),
        ]
    )


def _possible(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: one for name, one in entry["searchers"].items() if "impossible" not in one}


def _best(entry: Mapping[str, Any]) -> str:
    """Who has the highest mean, and whether our search is at least as good as the best of the others."""
    means = {
        name: float(one["mean"]["value"]) for name, one in _possible(entry).items() if not name.startswith("oracle-")
    }
    if not means:
        return ""
    best = max(means, key=lambda name: means[name])
    said = f"The highest mean has `{best}`: {100 * means[best]:.1f}."
    others = {name: mean for name, mean in means.items() if not name.startswith("fedtune-")}
    if OURS in means and others:
        rival = max(others, key=lambda name: others[name])
        lead = entry["searchers"][rival]["lead"]
        said += (
            f" Of the searchers that are not fedtune's, `{rival}` has the highest, {100 * others[rival]:.1f}; "
            f"`{OURS}` has {100 * means[OURS]:.1f}, and leads it by {points(lead)}."
        )
    return said + "\n"


def terminal(found: Mapping[str, Any]) -> str:
    """The tables for a screen; empty where nothing was measured."""
    return "\n".join(_table(found, name) for name in found.get("tables", {})).replace("`", "")
