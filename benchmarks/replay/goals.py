"""What a search was to reach, and what came of it: goals that were set before anything was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.page import table as rows_of
from benchmarks.replay.cells import percent, points
from benchmarks.replay.measures import rounds_to

#: Our searches as a user starts them, and how.
OURS = {"fedtune-1": "fedtune search", "fedtune-race-3": "--seeds 3", "fedtune-race": "--race"}
#: How the names of other packages' searchers begin.
OTHERS = ("optuna-", "ray-tune-", "syne-tune-", "smac-")
#: Random searches that none of ours is to be worse than.
RANDOM = ("random-1", "random-3", "random-5")
#: The winner's curse is to be within a point, and 90 % intervals are to hold in so many repetitions.
CURSE, COVERAGE = 0.01, 0.85

HEAD = """## What a search was to reach

Goals that were set before anything was measured. One search is **told** to be better than another, here and in what is
written about this page, where their 90 % intervals for the median do not meet; each comparison is taken by itself.

### One point of regret, in half the rounds of the best other searcher
"""


def section(found: Mapping[str, Any]) -> str:
    """The page's part."""
    parts = [HEAD, *_one_point(found), "### How honest the estimate is\n", *_honest(found)]
    parts += ["### Never worse than random search\n", *_random(found), "### Time for a proposal\n"]
    parts.append(
        "At most 50 ms with 100 trials and 200 ms with 1,000: reached, see [performance](performance.md#scaling).\n"
    )
    return "\n".join(parts)


def _one_point(found: Mapping[str, Any]) -> Iterator[str]:
    reached = [
        f"`{searcher}` on `{name}`"
        for name, entry in found["tables"].items()
        for searcher, one in entry["searchers"].items()
        if not searcher.startswith("oracle-") and one.get("rounds_to_goal") is not None
    ]
    got = (
        f"It is reached by {', '.join(reached)}."
        if reached
        else "No searcher that sees noise gets there, on any table."
    )
    yield (
        f"{got} The table shows after how many federations the median regret of `fedtune search` (`fedtune-1`) is, and "
        f"stays, as low as another searcher's after {found['budgets'][-1]}: the best of other packages, chosen with "
        "the answer in hand; random search with one seed, of whose rounds the goal was a fifth; the grid with three "
        f'seeds. "Not" means: not within {found["budgets"][-1]}.\n'
    )
    columns = ["table", "best other", "as good as that after", "as `random-1` after", "as `grid-3` after"]
    yield rows_of(columns, [_as_good(found, name) for name in found["tables"]])
    yield "Why one point is out of reach, after the same rounds, in points:\n"
    columns = ["table", "regret", "if the best that it tried had won", "`oracle-fedtune`"]
    columns += ["the model's best promises too much by"]
    yield rows_of(columns, [_why(found, name) for name in found["tables"]])
    yield (
        "The second number is what a choice without any noise would leave among the same trials, and the third what is "
        "left where proposals see no noise either. The last is by how much the best from which regret is counted lies "
        "too high, with two standard errors: [the model against measured federations]"
        "(#the-best-configuration-of-a-model).\n"
    )


def _as_good(found: Mapping[str, Any], name: str) -> Sequence[Any]:
    searchers = found["tables"][name]["searchers"]
    others = {s: _last(one) for s, one in searchers.items() if s.startswith(OTHERS) and "budgets" in one}
    best = min(others, key=others.__getitem__, default=None)
    row = [f"`{name}`", f"`{best}`, {100 * others[best]:.1f}" if best else "–"]
    return [*row, *(_when(found, searchers, other) for other in (best, "random-1", "grid-3"))]


def _when(found: Mapping[str, Any], searchers: Mapping[str, Any], other: str | None) -> str:
    ours, theirs = searchers.get("fedtune-1", {}), searchers.get(other, {}) if other else {}
    if "budgets" not in ours or "budgets" not in theirs:
        return "–"
    medians = [(b, one["regret"]["value"]) for b, one in zip(found["budgets"], ours["budgets"], strict=True)]
    reached = rounds_to(medians, _last(theirs))
    return "not" if reached is None else str(reached)


def _last(one: Mapping[str, Any]) -> float:
    return float(one["budgets"][-1]["regret"]["value"])


def _why(found: Mapping[str, Any], name: str) -> Sequence[Any]:
    searchers = found["tables"][name]["searchers"]
    cells = []
    for searcher, what in (("fedtune-1", "regret"), ("fedtune-1", "searching"), ("oracle-fedtune", "regret")):
        one = searchers.get(searcher, {})
        cells.append(points(one["budgets"][-1][what]) if "budgets" in one else "–")
    one = found.get("optima", {}).get(name)
    over = "–" if one is None else f"{100 * (one['model'] - one['mean']):.1f} ± {200 * one['error']:.1f}"
    return [f"`{name}`", *cells, over]


def _honest(found: Mapping[str, Any]) -> Iterator[str]:
    last = found["budgets"][-1]
    yield (
        f"The winner's curse was to be within ± {100 * CURSE:g} point, and the stated 90 % interval to hold in at "
        f"least {100 * COVERAGE:.0f} % of the repetitions. Both after {last} federations' rounds, each with the lowest "
        "and the highest over all budgets behind:\n"
    )
    rows = []
    for name, entry in found["tables"].items():
        for searcher, command in OURS.items():
            if "budgets" in (one := entry["searchers"].get(searcher, {})):
                rows.append([f"`{name}`", f"`{command}`", *_curse_and_coverage(one["budgets"])])
    columns = ["table", "search", "curse", "over budgets", "coverage", "over budgets", "both reached"]
    yield rows_of(columns, rows)


def _curse_and_coverage(budgets: Sequence[Mapping[str, Any]]) -> Sequence[str]:
    curses = [b["curse"]["value"] for b in budgets if b["curse"]["value"] is not None]
    covered = [b["covered"]["value"] for b in budgets if b["covered"]["value"] is not None]
    good = round(abs(curses[-1]), 3) <= CURSE and round(covered[-1], 2) >= COVERAGE  # as they are shown
    return [
        points(budgets[-1]["curse"]),
        f"{100 * min(curses):.1f} to {100 * max(curses):.1f}",
        percent(budgets[-1]["covered"]),
        f"{100 * min(covered):.0f} to {100 * max(covered):.0f} %",
        "yes" if good else "no",
    ]


def _random(found: Mapping[str, Any]) -> Iterator[str]:
    rows = []
    for name, entry in found["tables"].items():
        for searcher, command in OURS.items():
            for other in RANDOM:
                after = worse(found["budgets"], entry["searchers"].get(searcher, {}), entry["searchers"].get(other, {}))
                if after:
                    rows.append([f"`{name}`", f"`{command}`", f"`{other}`", ", ".join(map(str, after))])
    if not rows:
        yield "Reached: no search of ours is told to be worse than a random one, on any table at any budget.\n"
        return
    yield "Missed: these are told to be worse than random search, after so many federations' rounds.\n"
    yield rows_of(["table", "search", "worse than", "after"], rows)


def worse(budgets: Sequence[int], one: Mapping[str, Any], other: Mapping[str, Any]) -> list[int]:
    """The budgets at which the interval of `one` lies above that of `other`."""
    if "budgets" not in one or "budgets" not in other:
        return []
    return [
        budget
        for budget, a, b in zip(budgets, one["budgets"], other["budgets"], strict=True)
        if a["regret"]["low"] > b["regret"]["high"]
    ]
