"""docs/search-quality.md from the figures that were measured; nothing on the page is written by hand.

It begins with one number, and has what is needed to judge it; all else is in the record."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.page import table
from benchmarks.replay.cells import made, percent, points
from benchmarks.replay.gridded import SHUFFLED
from benchmarks.replay.measures import HELD
from benchmarks.replay.surrogate import GAUSSIAN, WORLDS, named

#: Tables by which nothing was decided, and those that rank nothing.
REPORTING = ("dfrd_full", "fedkf")
NULL = ("dfrd_alpha_lambda", f"dfrd_alpha_lambda, {SHUFFLED}")
#: Tables by which defaults were chosen, and what else is to be said of them.
DECIDING = {"fedavg": "", "mixed": "", "mnist": " (real images of 28 × 28)"}
#: Our searches as a user starts them, and how.
OURS = {
    "fedtune-1": "fedtune search --no-confirm",
    "fedtune-race": "fedtune search --race --no-confirm",
}
#: What a user has by default: one search of 40 federations, of which the last fifth confirms.
CONFIRMED = {"fedtune-1-confirmed-40": "fedtune search"}
#: The same where there is nothing to gain: those tables have seeds for 36 federations.
CONFIRMED_NULL = {"fedtune-1-confirmed-36": "fedtune search"}
#: How the names of other packages' searchers begin.
OTHERS = ("optuna-", "ray-tune-", "syne-tune-", "smac-", "neps-")
#: Of each other package the page shows so many searchers; all are in the record. Others that it shows.
OF_EACH = 2
BESIDE = ("random-1", "oracle-fedtune")
#: The budgets, in federations, that the page shows; the repetitions that the best peer must have.
SHOWN, EQUALLY = (5, 12, 40), 100
#: What was to be reached: the share of searches that claim a gain where there is none, how far an estimate lies from
#: the truth in the mean, regret as a multiple of that of the best tried; in points, how far an estimate lies from the
#: truth as a root mean square, without confirmation and with it, and how wide an interval is.
CLAIMED, CURSE, CHOSEN, RMS, WIDTH = 0.1, 0.01, 1.3, (5, 4), 25

HEAD = """# Quality of searches

{follows}

Made by `python -m benchmarks.replay record` from all that `make bench-search` measured (`xzcat benchmarks/recorded/search-quality.json.xz`). Nothing is trained: searches are replayed on recorded learning curves, each of them often.
"""

NUMBER = """## The number

**Regret** is how far the winner's mean test metric, over seeds that the search never saw, lies below that of the best configuration. The
table gives it in per cent of the regret of a blind choice, a configuration drawn at random: the median over repetitions, the mean over
{tables}, and half the width of its 90 % interval. A budget is the rounds of so many federations, over all trials. No default was
chosen by these tables, except that `ei` draws its candidates uniformly and that the first trials wait for one another; they were looked at
when second chances were refused and when priors were chosen. One search is **told** from another if their intervals do not overlap.
"""

TELLS = """## What a search says of its winner

After {last} federations, with goals in brackets. **Curse**: the search's own estimate minus the mean over seeds that it never saw, in points
(within {curse:g}). **rms**: its root mean square (at most {rms[0]}, or {rms[1]} if a search confirms). **Coverage**: how often the 90 % interval holds
that mean ({low:.0f} to {high:.0f} %). **Width**: its median (at most {width} points). **Within**: which intervals of one width would have that
coverage. **Of the best tried**: regret over the regret of the best configuration that was tried (at most {chosen:g}).
"""

WHERE = """## In three worlds

The values between recorded configurations are unknown. The number above is measured with a Gaussian process between them, which is the
model class of our own estimate. So searches are replayed in two more worlds: trees (a random forest), and the nearest recorded
configuration. In both a diverged federation stays one, and recorded means are shrunk by their noise. **Errs by** is the error
of each world on configurations that were left out, in points. Regret as above, after {budgets} federations (`fedtune-1` in trees at {trees}):
"""

NOTHING = """## Where there is nothing to gain

On DFRD's α × λ the thirty cells differ by half a point, and a seed moves them by 2.5; in the shuffled table values are assigned at random.
The share of searches that claim a gain over the paper's values (at most {goal:.0f} %; revision {when}; the one that confirms had 36):
"""

SEVERAL = """## Several objectives

The share of the hypervolume that is dominated by the configurations that a search names, by their means over seeds that it never saw; a
mean over budgets up to {last} federations. `fedtune search` with a `--metric` per objective, the best other searcher, and the difference.
"""

AUTO = """## fedtune auto

Regret of `fedtune auto` with so many federations, in points. With the same budget: `fedtune search` of the method whose paper's values are
best on one seed, successive halving of methods, and one search of a joint space. Singles: a search per method, at {methods} times the cost.
"""

OWN = """## Your own runs

The curves of runs over the same space become a table, and searches are replayed on it. Regret needs configurations with two seeds.

```sh
fedtune search fedavg --dataset blobs --set clients=3 --trials 6 --seeds 2 --no-race --scheduler none --rounds 3 --name mine
fedtune run runs/mine --seeds 2 --rounds 3 --name mine-final
fedtune export runs/mine runs/mine-final --table mine.npz
```

```sh
python -m benchmarks.replay run --table mine.npz --searchers random-1 fedtune-1 --repetitions 2
python -m benchmarks.replay page --check   # is this page what its record gives?
```
"""

NAMES = """## Searchers

`fedtune-1` is `fedtune search --no-confirm`, with one seed; `fedtune-race` the same with `--race`; `fedtune-1-confirmed-40` confirms with
the last fifth of 40 federations, as `fedtune search` does. `random-k` draws configurations and runs each to its end over k seeds. Searchers
of other packages have their own defaults and one seed, SMAC3's facades up to five. NePS's PriorBand has the paper's values as its prior;
`-high` trusts it more. `oracle-fedtune` sees true means, not noisy values. The first table shows the best two searchers of each package.
"""


def markdown(found: Mapping[str, Any]) -> str:
    """The page's text."""
    parts = [HEAD.format(follows=_follows(found))]
    if number := [*_number(found)]:
        parts += [NUMBER.format(tables=_names(_reporting(found))), *number]
    parts += [*_by_table(found), *_says(found), *_worlds(found), *_nothing(found), *_several(found), *_auto(found)]
    return "\n".join([*parts, OWN, NAMES]).rstrip() + "\n"


# -- regret in per cent of a blind choice's ----------------------------------------------------------------------------


def _places(found: Mapping[str, Any]) -> list[int]:
    """Where the budgets that the page shows stand among those that were measured."""
    return [place for place, budget in enumerate(found["budgets"]) if budget in SHOWN]


def _measured(found: Mapping[str, Any], searcher: str, tables: Sequence[str]) -> list[Mapping[str, Any]]:
    """The searcher's entry of each of these tables; empty where one lacks it."""
    entries = [found["tables"][name]["searchers"].get(searcher, {}) for name in tables]
    return entries if entries and all("budgets" in entry for entry in entries) else []


def regret(found: Mapping[str, Any], searcher: str, place: int, tables: Sequence[str]) -> tuple[float, float] | None:
    """The mean over tables of the median regret in per cent of a blind choice's, and half the width of the interval
    that holds it with 90 %, those of the tables taken as independent. None where a table lacks it."""
    if not (entries := _measured(found, searcher, tables)):
        return None
    blind = [float(found["tables"][name]["blind"]) for name in tables]
    at = [entry["budgets"][place]["regret"] for entry in entries]
    values = [100 * one["value"] / b for one, b in zip(at, blind, strict=True)]
    halves = [50 * (one["high"] - one["low"]) / b for one, b in zip(at, blind, strict=True)]
    return sum(values) / len(values), math.hypot(*halves) / len(halves)


def overall(found: Mapping[str, Any], searcher: str, tables: Sequence[str]) -> float | None:
    """The mean of that over the budgets of the page."""
    values = [regret(found, searcher, place, tables) for place in _places(found)]
    known = [value[0] for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _searchers(found: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(name for entry in found["tables"].values() for name in entry["searchers"]))


def _reporting(found: Mapping[str, Any]) -> list[str]:
    return [name for name in REPORTING if name in found["tables"]]


def peer(found: Mapping[str, Any], tables: Sequence[str]) -> str | None:
    """The searcher of another package with the lowest mean over tables and budgets, one for all; of those that were
    repeated equally often."""
    means = {}
    for name in _searchers(found):
        entries = _measured(found, name, tables)
        mean = overall(found, name, tables)
        if name.startswith(OTHERS) and mean is not None and min(one["n"] for one in entries) >= EQUALLY:
            means[name] = mean
    return min(means, key=means.__getitem__, default=None)


def _cell(value: tuple[float, float] | None) -> str:
    return "–" if value is None else f"{value[0]:.1f} ± {value[1]:.1f}"


def _told(one: tuple[float, float] | None, other: tuple[float, float] | None) -> int:
    """-1 where the first is told to be lower, 1 where it is told to be higher, else 0."""
    if one is None or other is None or abs(one[0] - other[0]) <= one[1] + other[1]:
        return 0
    return -1 if one[0] < other[0] else 1


def _follows(found: Mapping[str, Any]) -> str:
    """What follows from the figures, in a few sentences."""
    tables = _reporting(found)
    rival = peer(found, tables)
    ours = next(iter(OURS))
    if rival is None or overall(found, ours, tables) is None:
        return "No search was replayed beside those of other packages yet, on tables that decide nothing."

    def several(searcher: str) -> str:
        values = [regret(found, searcher, place, tables) for place in _places(found)]
        return _and([f"{value[0]:.1f}" for value in values if value is not None])

    budgets = [found["budgets"][place] for place in _places(found)]
    said = [
        f"After {_and(budgets)} federations the winner of `{OURS[ours]}` has {several(ours)} per cent of a blind "
        f"choice's regret, in the mean over recorded tables by which nothing was decided; the best single searcher of "
        f"another package for all of them, `{rival}`, has {several(rival)}."
    ]
    told = {
        budget: _told(regret(found, ours, place, tables), regret(found, rival, place, tables))
        for place, budget in zip(_places(found), budgets, strict=True)
    }
    lower, higher = ([budget for budget, sign in told.items() if sign == wanted] for wanted in (-1, 1))
    if not lower and not higher:
        said.append("The two are not told apart at any of these budgets.")
    else:
        parts = [f"told to be {word} after {_and(at)}" for word, at in (("better", lower), ("worse", higher)) if at]
        said.append(f"Ours is {' and '.join(parts)}.")
    for confirmed, command in CONFIRMED.items():
        if entries := _measured(found, confirmed, tables):
            value = regret(found, confirmed, -1, tables)
            said.append(
                f"`{command}`, which confirms with the last fifth of {found['budgets'][-1]} federations, has "
                f"{_cell(value)} ({_range([entry['n'] for entry in entries])} repetitions)."
            )
    if claims := [share["value"] for row in _claims(found) for share in row[3:] if share["value"] is not None]:
        high = max(claims)
        said.append(
            f"Where there is nothing to gain, {100 * min(claims):.0f} to {100 * high:.0f} % of our searches claim a "
            f"gain; the goal, at most {100 * CLAIMED:.0f} %, is {'reached' if high <= CLAIMED else 'missed'}."
        )
    return " ".join(said)


def _and(words: Sequence[object]) -> str:
    *first, last = map(str, words)
    return f"{', '.join(first)} and {last}" if first else last


def _names(names: Sequence[str]) -> str:
    return _and([f"`{name}`" for name in names])


def _number(found: Mapping[str, Any]) -> Iterator[str]:
    """The table of all searchers on the tables that do not decide, the best first; and where ours are worse."""
    tables = _reporting(found)
    wanted = [name for name in _searchers(found) if name.startswith(OTHERS) or name in (*OURS, *BESIDE)]
    means = {name: mean for name in wanted if (mean := overall(found, name, tables)) is not None}
    rows = []
    for name in _shown(means):
        entries = _measured(found, name, tables)
        cells = [_cell(regret(found, name, place, tables)) for place in _places(found)]
        rows.append(
            [f"`{name}`", *cells, f"{means[name]:.1f}", _range([e["n"] for e in entries]), _when(found, name, tables)]
        )
    if rows:
        budgets = [str(found["budgets"][place]) for place in _places(found)]
        yield table(["searcher", *budgets, "mean", "repetitions", "revision"], rows)
        if below := [name for name in means if name.startswith(OTHERS) and means[name] < means.get("fedtune-1", 0)]:
            yield f"A lower mean than `fedtune-1` {'has' if len(below) == 1 else 'have'} {_names(below)}.\n"


def _shown(means: Mapping[str, float]) -> list[str]:
    """The searchers in the order of their means, of each other package the best `OF_EACH`."""
    shown: list[str] = []
    for name in sorted(means, key=means.__getitem__):
        package = next((other for other in OTHERS if name.startswith(other)), None)
        if package is None or sum(one.startswith(package) for one in shown) < OF_EACH:
            shown.append(name)
    return shown


def _range(counts: Sequence[int]) -> str:
    return str(counts[0]) if len({*counts}) == 1 else f"{min(counts)} to {max(counts)}"


def _when(found: Mapping[str, Any], searcher: str, tables: Sequence[str]) -> str:
    """The revisions at which the searcher was replayed on these tables."""
    entries = [found["tables"][name] for name in tables if searcher in found["tables"][name]["searchers"]]
    made = [e["searchers"][searcher].get("occasion", e.get("occasion", found))["machine"]["revision"] for e in entries]
    return ", ".join(dict.fromkeys(made))


def _by_table(found: Mapping[str, Any]) -> Iterator[str]:
    """The same for every table that ranks something, one by one."""
    left = (*NULL, *REPORTING)
    tables = [name for name in found["tables"] if name not in left and not _world(name) and SHUFFLED not in name]
    rival = peer(found, _reporting(found))
    rows: list[Sequence[Any]] = []
    for name in tables:
        blind = f"{100 * found['tables'][name]['blind']:.1f}"
        for searcher in ("fedtune-1", *([rival] if rival else [])):
            cells = [regret(found, searcher, place, [name]) for place in _places(found)]
            if cells and None not in cells:
                rows.append([f"`{name}`", blind, f"`{searcher}`", *map(_cell, cells)])
    if rows:
        budgets = [str(found["budgets"][place]) for place in _places(found)]
        chosen = [f"`{name}`{DECIDING[name]}" for name in tables if name in DECIDING]
        by = f"; by {_and(chosen)} defaults were chosen" if chosen else ""
        yield (
            f"## On other tables\n\nThe same on every other table{by}. "
            f"`fedtune-1` was replayed at revision {_when(found, 'fedtune-1', tables)}.\n"
        )
        yield table(["table", "a blind choice, points", "searcher", *budgets], rows)


def _alone(interval: Mapping[str, Any] | None) -> str:
    """A value in hundredths, without its interval."""
    return "–" if interval is None or interval["value"] is None else f"{100 * interval['value']:.1f}"


def _from_to(ends: Sequence[float] | None) -> str:
    """`12 to 14`, in hundredths."""
    return "–" if ends is None else " to ".join(f"{100 * end:.0f}" for end in ends)


# -- what a search says, and other worlds ------------------------------------------------------------------------------


def _says(found: Mapping[str, Any]) -> Iterator[str]:
    rows: list[Sequence[Any]] = []
    for name in found["tables"]:
        for searcher, command in (OURS | CONFIRMED).items():
            if name not in NULL and not _world(name) and (entry := _measured(found, searcher, [name])):
                last = entry[0]["budgets"][-1]
                tried = last["searching"]["value"]
                times = f"{last['regret']['value'] / tried:.1f}" if tried > 0 else "–"
                cells = [_cell(regret(found, searcher, -1, [name])), points(last["curse"]), _alone(last.get("error"))]
                cells += [percent(last["covered"]), _alone(last.get("width")), _from_to(last.get("holding"))]
                rows.append([f"`{name}`", f"`{command}`", str(entry[0]["n"]), *cells, times])
    if rows:
        low, high = (100 * bound for bound in HELD)
        goals = {"curse": 100 * CURSE, "low": low, "high": high, "chosen": CHOSEN, "rms": RMS, "width": WIDTH}
        yield TELLS.format(**goals, last=found["budgets"][-1])
        heads = ["table", "search", "repetitions", "regret", "curse", "rms", "coverage", "width", "within"]
        yield table([*heads, "of the best tried"], rows)
    over = [
        f"{100 * (one['model'] - one['mean']):.0f} ± {200 * one['error']:.0f} points on `{name}`"
        for name, one in found.get("optima", {}).items()
        if name in REPORTING
    ]
    if over and rows:
        yield (
            "The best configuration of the Gaussian world, from which regret is counted, was trained on five fresh "
            f"seeds: it promises too much by {_and(over)}. That is in the regret of all searchers alike.\n"
        )


def _world(name: str) -> str | None:
    """The world of a table that is none of the Gaussian ones."""
    return next((w for w in WORLDS if w != GAUSSIAN and name.endswith(f", {w}")), None)


def _worlds(found: Mapping[str, Any]) -> Iterator[str]:
    """Of the searchers that were replayed in all worlds, a row per table and searcher."""
    rows: list[Sequence[Any]] = []
    places = _places(found)[-2:]
    bases = [name.removesuffix(f", {world}") for name in found["tables"] if (world := _world(name))]
    for base in dict.fromkeys(bases):
        there = {world: named(base, world) for world in WORLDS}
        if not {*there.values()} <= found["tables"].keys():
            continue
        errors = [
            found["tables"][name]["text"].partition("errs by ")[2].partition(" points")[0] for name in there.values()
        ]
        rows.append([f"`{base}` errs by", "", *(cell for error in errors for cell in (error, ""))])
        for searcher in _searchers(found):
            if entries := _measured(found, searcher, [*there.values()]):
                cells = [_cell(regret(found, searcher, place, [name])) for name in there.values() for place in places]
                rows.append([f"`{base}`, `{searcher}`", _range(sorted({one["n"] for one in entries})), *cells])
    if rows:
        budgets = [found["budgets"][place] for place in places]
        trees = [name for name in found["tables"] if _world(name) == "trees"]
        yield WHERE.format(budgets=_and(budgets), trees=_when(found, next(iter(OURS)), trees))
        yield table(["", "repetitions", *(f"{world}, {budget}" for world in WORLDS for budget in budgets)], rows)


def _claims(found: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Of the tables where there is nothing to gain: table, search, repetitions, and the share of claims at the page's
    budgets."""
    rows = []
    for name in NULL:
        for searcher, command in (OURS | CONFIRMED_NULL).items():
            for entry in _measured(found, searcher, [name]) if name in found["tables"] else []:
                shares = [entry["budgets"][place].get("claim", {"value": None}) for place in _places(found)]
                if searcher in CONFIRMED_NULL:  # what it says before its confirmation is no answer
                    shares = [{"value": None}] * (len(shares) - 1) + shares[-1:]
                if any(share["value"] is not None for share in shares):
                    rows.append((name, command, entry["n"], *shares))
    return rows


def _nothing(found: Mapping[str, Any]) -> Iterator[str]:
    rows = [
        [f"`{name}`", f"`{command}`", str(n), *map(percent, shares)] for name, command, n, *shares in _claims(found)
    ]
    if rows:
        there = [name for name in NULL if name in found["tables"]]
        yield NOTHING.format(goal=100 * CLAIMED, when=_when(found, next(iter(OURS)), there))
        yield table(
            ["table", "search", "repetitions", *(str(found["budgets"][place]) for place in _places(found))], rows
        )


# -- several objectives, and auto --------------------------------------------------------------------------------------


def _several(found: Mapping[str, Any]) -> Iterator[str]:
    rows: list[Sequence[Any]] = []
    for name, entry in found.get("objectives", {}).get("tables", {}).items():
        there = {s: one for s, one in entry["searchers"].items() if "mean" in one}
        others = {s: one["mean"]["value"] for s, one in there.items() if not s.startswith(("fedtune-", "oracle-"))}
        if others and "fedtune-1" in there:
            best = max(others, key=others.__getitem__)
            cells = [points(there[s]["mean"]) for s in ("fedtune-1", best)]
            rows.append([f"`{name}`", cells[0], f"`{best}`", cells[1], points(there[best]["lead"])])
    if rows:
        yield SEVERAL.format(last=found["budgets"][-1])
        yield table(["table", "`fedtune-1`", "best other", "its share", "lead of `fedtune-1`"], rows)


#: What the page calls the arms of auto's replay; those that a record lacks are left out.
AUTO_ARMS = {
    "auto": "auto",
    "paper": "by the paper",
    "alike": "singles",
    "halving": "halving of methods",
    "one space": "one space for all",
}


def _auto(found: Mapping[str, Any]) -> Iterator[str]:
    auto = found.get("auto")
    if not auto or not auto["datasets"]:
        yield "## fedtune auto\n\nNot measured yet: `make tables ONLY=auto`, then `make bench-search TABLES=auto`.\n"
        return
    rows: list[Sequence[Any]] = []
    measured = [at["regret"] for entry in auto["datasets"].values() for at in entry["budgets"] if "regret" in at]
    arms = [arm for arm in AUTO_ARMS if all(arm in regret for regret in measured)]
    for name, entry in auto["datasets"].items():
        for at in (entry["budgets"][0], entry["budgets"][-1]):
            cells = ["–"] * len(arms) if "refused" in at else [points(at["regret"][arm]) for arm in arms]
            rows.append([name, str(at["federations"]), points(entry["blind"]), *cells])
    yield AUTO.format(methods=max(entry["methods"] for entry in auto["datasets"].values()))
    yield table(["data set", "federations", "a blind choice", *(AUTO_ARMS[arm] for arm in arms)], rows)
    yield made(auto)


def terminal(found: Mapping[str, Any]) -> str:
    """Regret of every searcher on every table, for a screen."""
    budgets = [str(found["budgets"][place]) for place in _places(found)]
    rows = []
    for searcher in _searchers(found):
        cells = []
        for name in found["tables"]:
            values = [regret(found, searcher, place, [name]) for place in _places(found)]
            cells.append("  ".join(f"{value[0]:.1f}" for value in values if value is not None) or "–")
        rows.append([searcher, *cells])
    title = f"Regret in per cent of a blind choice's, after {_and(budgets)} federations" if budgets else "Regret"
    return f"{_follows(found)}\n\n{title}\n{table(['searcher', *found['tables']], rows)}" if rows else ""
