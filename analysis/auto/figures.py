"""The figures of a leaderboard."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from analysis import style
from analysis.auto.leaderboard import LeaderboardRow, expected_best
from analysis.labels import Labels
from search_spaces.metrics import METRICS, SHARES


@dataclass(frozen=True)
class AutoFigure:
    """A figure's title, two sentences on how to read it, and how it is drawn."""

    title: str
    #: Its name in a report's navigation.
    link: str
    read: tuple[str, str]
    draw: Callable[[Sequence[LeaderboardRow], str], go.Figure]


def _leaderboard(listed: Sequence[LeaderboardRow], metric: str) -> go.Figure:
    """A row per method, the leader on top: every fresh seed as a dot, the mean with its interval as a bar."""
    labels = Labels()
    scale = labels.scale(metric)
    figure = go.Figure()
    rows = [row for row in reversed(listed) if row.fresh]
    for place, row in enumerate(rows):
        colour = style.CYCLE[(len(rows) - 1 - place) % len(style.CYCLE)]
        figure.add_scatter(
            x=[scale * value for value in row.fresh.values()],
            y=[row.method] * len(row.fresh),
            mode="markers",
            marker={"color": style.faded(colour, 0.45), "size": 9},
            customdata=list(row.fresh),
            hovertemplate=f"{row.method}, seed %{{customdata}}: %{{x:.2f}}<extra></extra>",
        )
        figure.add_scatter(
            x=[scale * row.mean],
            y=[row.method],
            mode="markers",
            marker={"color": colour, "size": 13, "symbol": "line-ns", "line": {"width": 3, "color": colour}},
            error_x={
                "type": "data",
                "symmetric": False,
                "array": [scale * (row.high - row.mean)] if len(row.fresh) > 1 else [0],
                "arrayminus": [scale * (row.mean - row.low)] if len(row.fresh) > 1 else [0],
                "color": colour,
            },
            hovertemplate=f"{row.method}: %{{x:.2f}}<extra></extra>",
        )
    style.title_axes(figure, 1, labels.metric(metric), "", xaxis=_possible(rows, metric, scale))
    return style.panels(figure, [""], columns=1, height=90 + 44 * len(rows), left=110)


def _possible(rows: Sequence[LeaderboardRow], metric: str, scale: float) -> dict[str, Any]:
    """The axis, of a share no wider than shares are: the interval over two seeds may be wider than all of them."""
    ends = [end for row in rows if len(row.fresh) > 1 for end in (row.low, row.high)]
    ends += [value for row in rows for value in row.fresh.values()]
    if metric not in SHARES or not ends or (min(ends) >= 0 and max(ends) <= 1):
        return {}
    low, high = max(0.0, min(ends)), min(1.0, max(ends))
    pad = 0.03 * (high - low)
    return {"range": [scale * (low - pad), scale * (high + pad)]}


def _budget(listed: Sequence[LeaderboardRow], metric: str) -> go.Figure:
    """What the search spent on each method, in seed-rounds and in seconds."""
    figure = go.Figure()
    methods = [row.method for row in reversed(listed)]
    amounts = ("seed_rounds", "rounds"), ("seconds", "s")
    for panel, (name, unit) in enumerate(amounts, start=1):
        figure.add_bar(
            x=[getattr(row, name) for row in reversed(listed)],
            y=methods,
            orientation="h",
            marker={"color": style.BLUE},
            customdata=[[row.trials, row.stopped] for row in reversed(listed)],
            hovertemplate=f"%{{y}}: %{{x:.4g}} {unit}, %{{customdata[0]}} trials, %{{customdata[1]}} of them stopped "
            "early<extra></extra>",
            **style.axes(panel),
        )
        style.title_axes(figure, panel, unit, "")
    titles = ["Rounds of single federations", "Seconds of computing"]
    return style.panels(figure, titles, columns=2, height=90 + 34 * len(methods), left=110)


def _expected(listed: Sequence[LeaderboardRow], metric: str) -> go.Figure:
    """By method, the expected best after k trials."""
    labels = Labels()
    sign = 1.0 if METRICS[metric].direction == "maximize" else -1.0
    figure = go.Figure()
    drawn = 0
    for place, row in enumerate(listed):
        values = row.ends
        if not values:
            continue
        drawn += 1
        counts = list(range(1, len(values) + 1))
        figure.add_scatter(
            x=counts,
            y=[labels.scale(metric) * expected_best(values, k, sign) for k in counts],
            mode="lines+markers",
            name=row.method,
            line={"color": style.CYCLE[place % len(style.CYCLE)], "dash": style.DASHES[place % len(style.DASHES)]},
            hovertemplate=f"{row.method}, best of %{{x}} trials: %{{y:.2f}}<extra></extra>",
        )
    style.title_axes(figure, 1, "trials", labels.metric(metric))
    return style.panels(figure, [""], columns=1, height=320, legend=drawn, left=60)


FIGURES: Mapping[str, AutoFigure] = {
    "leaderboard": AutoFigure(
        "Best configurations on fresh seeds",
        "Fresh seeds",
        (
            "A row is a method's best configuration: every dot is a seed that the search never saw, the line its mean "
            "with the 95 % interval.",
            "Seed k is the same federation for all methods, so differences on pairs say more than whether intervals "
            "overlap: see the tests in the table.",
        ),
        _leaderboard,
    ),
    "budget": AutoFigure(
        "What the search spent",
        "Spent",
        (
            "A bar is what the search spent on a method.",
            "After every method had its minimum, the budget went where a new trial promised the largest gain per cost.",
        ),
        _budget,
    ),
    "expected": AutoFigure(
        "Expected best after k trials",
        "Expected",
        (
            "A line says how good the best of k trials of a method is expected to be, if its trials came in random "
            "order.",
            "A line that still rises would gain from more trials; stopped trials count with their last value.",
        ),
        _expected,
    ),
}
