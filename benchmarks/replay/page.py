"""docs/search-quality.md from the figures that were measured; nothing on the page is written by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.page import table
from benchmarks.replay import defaults, goals, live, optima
from benchmarks.replay.auto import section as auto_section
from benchmarks.replay.cells import percent, points
from benchmarks.replay.kept import whens

HEAD = """# Quality of searches

{follows}

Made by `python -m benchmarks.replay record` from `benchmarks/recorded`; measured by `make bench-search`. Nothing is
trained: searches are replayed on recorded learning curves (`benchmarks/tables`), so every searcher is repeated often. The
record also has every other budget, and the minutes on several slots (`xzcat benchmarks/recorded/search-quality.json.xz`).

**Regret** is how far the winner's mean test metric over seeds that the search never saw lies below that of the best
configuration there is, in points (hundredths of the metric). Medians over repetitions, with the interval that holds the median
with a probability of 90 %. Budgets are counted in seed-rounds: rounds of single federations over all trials, here as multiples
of a whole federation. **Winner's curse** is the search's own estimate of its winner minus the winner's mean validation metric
over those seeds, in points, a mean. **Coverage** is how often the 90 % interval that a searcher states for the mean over so many
fresh seeds holds that mean: over the held-out seeds of a grid's table (four), over all seeds where a model knows their mean. The
terminal states the interval for the mean over all seeds, and a report the one for the seeds of a final run.

**Every configuration on every seed** is the regret of the configuration with the highest mean over all seeds that a search may use,
as if each had run on all of them, whatever that costs: what the highest mean leaves of the noise of those seeds and of the held-out
ones. It is no bound: a choice that takes neighbours into account can do better.

| searcher | what it does |
|---|---|
| `random-k`, `grid-k` | configurations at random or from the grid, each to its end over k seeds; the highest mean wins |
| `fedtune-k` | `fedtune search --seeds k --no-race` as it stands: expected improvement and asynchronous successive halving, the winner by estimate; its own code without Ray |
| `fedtune-1-tpe` | `fedtune-1` with `--sampler tpe`, Optuna's TPE, which was the default before |
| `fedtune-race` | `fedtune search --race`: the same, with up to ten seeds for configurations that are worth it |
| `fedtune-race-3` | `fedtune search --seeds 3`, which is a race of up to three seeds |
| `fedtune-1-grace` | `fedtune-1` with a first rung that was chosen from its own first trials, which all ran to their end; it did not pay, and the option is gone |
| `fedtune-1-early`, `fedtune-race-early` | a search and a race by `--sampler tpe` and a lag of 4 with `--grace 1`: early stopping begins after the first round in place of the third |
| `optuna-…` | Optuna's TPE or Gaussian process, with its median, successive-halving or Hyperband pruner; one seed |
| `ray-tune-optuna` | Ray Tune's OptunaSearch and its ASHA; one seed |
| `syne-tune-…` | Syne Tune's ASHA with its random, KDE, BORE or conformal quantile regression searcher; one seed |
| `smac-race`, `smac-hyperband` | SMAC3's facade for noisy functions (up to five seeds each), and its multi-fidelity facade; `make bench-search-peers` |
| `oracle-…` | the same proposals, told the test metric's true mean in place of noisy values: what is left without noise; as it estimates a test metric, its "curse" is the difference between test and validation |
"""

#: The searchers whose winners are looked at closely; the regret of all stands in one table. Every budget of every
#: searcher, and minutes on 4 and 8 slots, are in `benchmarks/recorded`.
SHOWN = ("random-1", "grid-3", "fedtune-1", "fedtune-race-3", "fedtune-race", "oracle-fedtune")

CHECK = """
```sh
python -m benchmarks.replay page --check
```
"""


def markdown(found: Mapping[str, Any]) -> str:
    """The page's text."""
    from benchmarks.replay.objectives.page import section

    parts = [HEAD.format(follows=_follows(found)), CHECK.lstrip(), whens(found)]
    if found["tables"]:
        parts += [goals.section(found), _regret(found), _to_goal(found)]
    parts += [_section(found, name) for name in found["tables"]]
    if "live" in found:
        parts.append(live.section(found["live"]))
    if "optima" in found:
        parts.append(optima.section(found["optima"]))
    if "defaults" in found:
        parts.append(defaults.section(found["defaults"]))
    parts += [section(_shared(found) | found.get("objectives", {})), auto_section.section(found.get("auto"))]
    parts.append(_missing(found))
    return "\n".join(parts).rstrip() + "\n"


#: The name of a table ends so where values were dealt out by chance, so that nothing can be learnt.
SHUFFLED = "shuffled"


def _follows(found: Mapping[str, Any]) -> str:
    """What follows from the figures, after the largest budget: three sentences at most."""
    tables = {name: entry["searchers"] for name, entry in found["tables"].items()}
    both = {name: one for name, one in tables.items() if {"fedtune-1", "random-1"} <= one.keys()}
    real = {name: one for name, one in both.items() if SHUFFLED not in name}
    if not real:
        return "No search was replayed beside random search yet."

    def last(one: Mapping[str, Any], searcher: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = one[searcher]["budgets"][-1]
        return found

    regrets = [(last(one, "fedtune-1")["regret"], last(one, "random-1")["regret"]) for one in real.values()]
    better = sum(own["high"] < other["low"] for own, other in regrets)
    worse = sum(own["low"] > other["high"] for own, other in regrets)
    held = [100 * last(one, "fedtune-1")["covered"]["value"] for one in real.values()]
    said = [
        f"After {found['budgets'][-1]} federations' rounds the winner of `fedtune search` is told to be better than "
        f"that of random search on {better} of {len(real)} recorded problems, and to be worse on {worse}.",
        f"The 90 % interval that it states for its winner holds the truth in {min(held):.0f} to {max(held):.0f} % of the "
        f"repetitions, by problem.",
    ]
    chance = [one for name, one in both.items() if SHUFFLED in name]
    if chance:
        helped = any(last(o, "fedtune-1")["regret"]["high"] < last(o, "random-1")["regret"]["low"] for o in chance)
        said.append(
            "Where neighbours tell nothing of one another, on the shuffled grid, it "
            + ("is told to be better as well." if helped else "is not told to be better.")
        )
    return " ".join(said)


def _shared(found: Mapping[str, Any]) -> dict[str, Any]:
    """What holds for searches with one and with several objectives."""
    return {key: found[key] for key in ("repetitions", "slots", "budgets", "processes", "machine")}


def _searchers(found: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(name for entry in found["tables"].values() for name in entry["searchers"]))


def _regret(found: Mapping[str, Any]) -> str:
    place = len(found["budgets"]) // 2
    tables = found["tables"]
    rows: list[Sequence[Any]] = [
        ["a blind choice", *(_number(entry["blind"]) for entry in tables.values())],
        ["every configuration on every seed", *(_number(entry.get("floor")) for entry in tables.values())],
    ]
    rows += [
        [f"`{searcher}`", *(_cell(entry["searchers"].get(searcher), place) for entry in tables.values())]
        for searcher in _searchers(found)
    ]
    return (
        f"## Regret after {found['budgets'][place]} federations' rounds\n\n"
        + table(["searcher", *tables], rows)
        + "\nA dash: not possible on that table, or not replayed there yet, see below; a continuous space has no end of "
        "configurations.\n"
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def _cell(entry: Mapping[str, Any] | None, place: int) -> str:
    return "–" if entry is None or "impossible" in entry else points(entry["budgets"][place]["regret"])


def _to_goal(found: Mapping[str, Any]) -> str:
    rows: list[Sequence[Any]] = []
    never = []
    for searcher in _searchers(found):
        cells = []
        for entry in found["tables"].values():
            one = entry["searchers"].get(searcher)
            reached = None if one is None or "impossible" in one else one["rounds_to_goal"]
            cells.append("not reached" if reached is None else str(reached))
        if set(cells) == {"not reached"}:
            never.append(f"`{searcher}`")
        else:
            rows.append([f"`{searcher}`", *cells])
    if never:
        rows.append(["all others", *("not reached" for _ in found["tables"])])
    title = f"## Seed-rounds until the median regret stays at {100 * found['goal']:g} point or below"
    return "\n".join([title + "\n", table(["searcher", *found["tables"]], rows), *_without_noise(found)])


#: The searcher that proposes as fedtune does and sees no noise.
ORACLE = "oracle-fedtune"


def _without_noise(found: Mapping[str, Any]) -> Iterator[str]:
    """Where fedtune's proposals do not reach the goal without noise either, in a sentence."""
    told = {name: entry["searchers"].get(ORACLE, {}) for name, entry in found["tables"].items()}
    missed = {name: one for name, one in told.items() if "budgets" in one and one["rounds_to_goal"] is None}
    if missed:
        last = ", ".join(
            f"{100 * one['budgets'][-1]['regret']['value']:.1f} on `{name}`" for name, one in missed.items()
        )
        yield (
            f"`{ORACLE}`, which sees every configuration's true mean, does not get there either within "
            f"{found['budgets'][-1]} federations' rounds: {last}.\n"
        )


def _section(found: Mapping[str, Any], name: str) -> str:
    entry = found["tables"][name]
    possible = {s: e for s, e in entry["searchers"].items() if "impossible" not in e}
    last = [
        [
            f"`{s}`",
            points(e["budgets"][-1]["regret"]),
            points(e["budgets"][-1]["searching"]),
            points(e["budgets"][-1]["curse"]),
            percent(e["budgets"][-1]["covered"]),
        ]
        for s, e in possible.items()
        if s in SHOWN
    ]
    columns = ["searcher", "regret", "of that, never tried a better one", "winner's curse", "coverage"]
    dashes = [f"`{s}`: {e['impossible']}." for s, e in entry["searchers"].items() if "impossible" in e]
    return "\n".join(
        [
            f"## {name}\n",
            entry["text"] + "\n",
            f"After {found['budgets'][-1]} federations' rounds:\n",
            table(columns, last),
            *(f"{line}\n" for line in dashes),
        ]
    )


def _missing(found: Mapping[str, Any]) -> str:
    from benchmarks.replay.searchers import SEARCHERS

    there = _searchers(found)
    lines = [f"- `{name}`: not replayed this time." for name in SEARCHERS if name not in there]
    for name in there:
        without = [f"`{title}`" for title, entry in found["tables"].items() if name not in entry["searchers"]]
        lines += [f"- `{name}`: not replayed yet on {', '.join(without)}."] if without else []
    lines += [f"- The table `{name}`: not replayed yet." for name in found["unrecorded"]]
    return "## What is missing\n\n" + "\n".join(lines) + "\n" if lines else ""


def terminal(found: Mapping[str, Any]) -> str:
    """The first table for a screen, and those with several objectives."""
    from benchmarks.replay.objectives.page import terminal as several

    one = _regret(found).replace("`", "") if found["tables"] else ""
    return "\n".join([one, several(_shared(found) | found.get("objectives", {}))]).strip()
