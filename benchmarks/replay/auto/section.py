"""The page's part on `fedtune auto`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.page import table
from benchmarks.replay.cells import made, percent, points

HEAD = """## fedtune auto

How far `fedtune auto` with a budget of B lies below {methods} single searches with B each, which cost {methods} times
as much. The budget is the command's: it pays for the search over all methods, for the fresh seeds of their best
configurations and for the leader's final run. Budgets are given in whole federations of one seed.

- **auto**, **--equal**: the command's leader, by its own division of the budget, queue, allocation and fresh seeds.
- **by the paper**: the method whose paper's values are the best on one seed; the rest of B tunes that method alone.
- **singles, chosen alike**: `fedtune search` of every method with B each; of their winners the one with the highest
  mean on auto's fresh seeds, which are not counted.
- **singles, in hindsight**: of these winners the best by the held-out seeds themselves. Nobody can choose so; among
  equals chance decides, so it looks better than any of them is.

Regret is in points, as above, to the best recorded configuration of all methods. The rules by which auto divides its
budget were chosen on digits and blobs; rotated_digits was recorded when they stood, and nothing was chosen by it.
"""

NOT_YET = """## fedtune auto

How far `fedtune auto` lies below single searches of every method with the same budget each is not measured yet. Record
its tables with `make tables ONLY=auto`, and replay with `make bench-search TABLES=auto`.
"""

#: What the page calls the arms.
ARMS = {
    "auto": "auto",
    "equal": "--equal",
    "paper": "by the paper",
    "alike": "singles, chosen alike",
    "hindsight": "singles, in hindsight",
}


def section(found: Mapping[str, Any] | None) -> str:
    """What was measured, or that nothing was."""
    if not found or not found["datasets"]:
        return NOT_YET
    methods = max(entry["methods"] for entry in found["datasets"].values())
    parts = [HEAD.format(methods=methods), made(found), "Regret:\n", _regrets(found)]
    parts += [
        f"Auto lies below by so many points (the goal is at most {100 * found['goal']:g}):\n",
        _differences(found),
    ]
    parts += [f"{name}: {entry['text']}\n" for name, entry in found["datasets"].items()]
    parts += _refused(found)
    parts += [f"The tables of {name} are not recorded yet.\n" for name in found["unrecorded"]]
    return "\n".join(parts)


def _rows(found: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    return [(name, entry, at) for name, entry in found["datasets"].items() for at in entry["budgets"]]


def _regrets(found: Mapping[str, Any]) -> str:
    rows: list[Sequence[Any]] = [
        [
            name,
            f"{at['federations']} ({at['seed_rounds']})",
            points(entry["blind"]),
            *("–" if "refused" in at else points(at["regret"][arm]) for arm in ARMS),
        ]
        for name, entry, at in _rows(found)
    ]
    return table(["data set", "federations (seed-rounds)", "a blind choice", *ARMS.values()], rows)


def _differences(found: Mapping[str, Any]) -> str:
    rivals = ("alike", "hindsight", "paper", "equal")
    rows: list[Sequence[Any]] = []
    for name, _, at in _rows(found):
        missing = "refused" in at
        cells = ["–" if missing else points(at["difference"][rival]) for rival in rivals]
        cells += ["–", "–"] if missing else [percent(at["within"]["alike"]), percent(at["same_method"])]
        rows.append([name, f"{at['federations']} ({at['seed_rounds']})", *cells])
    columns = ["data set", "federations (seed-rounds)", *(ARMS[rival] for rival in rivals)]
    return table([*columns, "within the goal of those chosen alike", "the method that is best in hindsight"], rows)


def _refused(found: Mapping[str, Any]) -> list[str]:
    return [
        f"{name}, {at['federations']} federations: {at['refused']}\n" for name, _, at in _rows(found) if "refused" in at
    ]


def terminal(found: Mapping[str, Any]) -> str:
    """Both tables for a screen."""
    return f"{_regrets(found)}\n{_differences(found)}"
