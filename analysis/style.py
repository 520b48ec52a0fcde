"""How figures look: one palette that colour-blind readers can tell apart, one typography, and where panels go.

Figures are drawn in the light palette. The page swaps every colour of `LIGHT` for the one of `DARK` at the same name
when it is dark, and the patches that `panels` leaves in `layout.meta` rearrange panels on narrow screens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import plotly.graph_objects as go

FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif'

# Okabe and Ito's hues; the dark ones are lightened to keep a contrast of at least 4.5 on the dark page.
LIGHT = {
    "ink": "#1c2127",
    "muted": "#5c6773",
    "faint": "#b4bcc5",
    "grid": "#e7eaee",
    "paper": "#ffffff",
    "blue": "#0072b2",
    "orange": "#d55e00",
    "green": "#00805d",
    "yellow": "#b07900",
    "sky": "#3a97cf",
    "purple": "#a9478a",
}
DARK = {
    "ink": "#e8ebef",
    "muted": "#a3adb8",
    "faint": "#59636f",
    "grid": "#2b3138",
    "paper": "#171b20",
    "blue": "#58aee8",
    "orange": "#ff8b4a",
    "green": "#3fc499",
    "yellow": "#e8b64c",
    "sky": "#8fd0f7",
    "purple": "#e08fc6",
}
INK, MUTED, FAINT, GRID, PAPER = (LIGHT[n] for n in ("ink", "muted", "faint", "grid", "paper"))
BLUE, ORANGE, GREEN, YELLOW, SKY, PURPLE = (LIGHT[n] for n in ("blue", "orange", "green", "yellow", "sky", "purple"))

#: Colours of things listed side by side, such as methods.
CYCLE = (BLUE, ORANGE, GREEN, PURPLE, YELLOW, SKY, INK, MUTED)
#: Dashes that go with `CYCLE`, so that lines can be told apart without colour.
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
#: Marks that go with them.
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross")
#: Text on bright and on dark colours of `SEQUENTIAL`; the same on a dark page. On colours between the two, a text any
#: duller than these could not be read.
ON_BRIGHT, ON_DARK = "#000000", "#fefefe"
#: For values: perceptually even, readable without red and green.
SEQUENTIAL = "Viridis"
#: For how unsure something is, in other colours than values.
UNSURE = "Cividis"

#: How a trial ended: colour, symbol, words.
OUTCOMES: dict[str, tuple[str, str, str]] = {
    "completed": (BLUE, "circle", "completed"),
    "scheduler": (MUTED, "circle-open", "stopped early"),
    "diverged": (ORANGE, "x", "diverged"),
    "error": (PURPLE, "triangle-up", "failed with an error"),
    "interrupted": (YELLOW, "diamond-open", "interrupted, to be resumed"),
    "running": (YELLOW, "diamond-open", "running"),
    "waiting": (FAINT, "square-open", "waiting"),
}


def outcome(state: str, reason: str) -> str:
    """A trial's key in `OUTCOMES` from its Optuna state and its recorded stop reason."""
    if reason in OUTCOMES:
        return reason
    return {"COMPLETE": "completed", "PRUNED": "scheduler", "FAIL": "error", "RUNNING": "running"}.get(state, "waiting")


def luminance(colour: Sequence[float]) -> float:
    """How bright a colour is, from 0 to 1, by its red, green and blue from 0 to 255: WCAG 2's relative luminance."""
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in (part / 255 for part in colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def readable(values: np.ndarray, low: float, high: float) -> list[str]:
    """For each value the colour of what is drawn on its colour, on a scale from `low` to `high`: `ON_BRIGHT` or
    `ON_DARK`, whichever has more contrast."""
    from plotly.colors import sample_colorscale, unlabel_rgb

    places = [min(1.0, max(0.0, (value - low) / (high - low))) for value in values.tolist()]
    behind = [luminance(unlabel_rgb(colour)) for colour in sample_colorscale(SEQUENTIAL, places)] if places else []
    dark, bright = (luminance([int(c[i : i + 2], 16) for i in (1, 3, 5)]) + 0.05 for c in (ON_BRIGHT, ON_DARK))
    return [ON_BRIGHT if (light + 0.05) / dark > bright / (light + 0.05) else ON_DARK for light in behind]


def faded(colour: str, alpha: float) -> str:
    """`#rrggbb` with transparency. The page finds the colour again by its three numbers."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha:g})"


def band(
    rounds: Sequence[int], mean: np.ndarray, std: np.ndarray, colour: str, panel: int, group: str | None = None
) -> go.Scatter:
    """The area of one standard deviation on both sides of a line; `group` is the line's group in the legend."""
    import plotly.graph_objects as go

    return go.Scatter(
        x=[*rounds, *reversed(rounds)],
        y=[*(mean + std), *(mean - std)[::-1]],
        fill="toself",
        fillcolor=colour,
        mode="lines",
        line={"width": 0},
        hoverinfo="skip",
        showlegend=False,
        legendgroup=group,
        **axes(panel),
    )


def base(figure: go.Figure) -> go.Figure:
    """The looks every figure shares: font, quiet axes, no title (the card carries it), legend below."""
    axis = {
        "gridcolor": GRID,
        "linecolor": FAINT,
        "zerolinecolor": GRID,
        "showline": True,
        "ticks": "outside",
        "tickcolor": FAINT,
        "ticklen": 4,
        "automargin": True,
        "zeroline": False,
        "title": {"standoff": 10, "font": {"size": 13, "color": MUTED}},
        "tickfont": {"size": 12, "color": MUTED},
    }
    figure.update_layout(
        template="none",
        font={"family": FONT, "size": 13, "color": INK},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        autosize=True,
        hoverlabel={"font": {"family": FONT, "size": 13}, "align": "left"},
        hovermode="closest",
        legend={
            "orientation": "h",
            "yref": "container",
            "y": 0.0,
            "yanchor": "bottom",
            "x": 0.0,
            "xanchor": "left",
            "font": {"size": 12, "color": INK},
            "bgcolor": "rgba(0,0,0,0)",
            "itemsizing": "trace",
        },
        modebar={"bgcolor": "rgba(0,0,0,0)", "color": FAINT, "activecolor": MUTED},
    )
    figure.update_xaxes(axis)
    figure.update_yaxes(axis)
    return figure


#: Pixels that a letter of a panel's title takes, on average and rounded up.
LETTER = 7.6


def panels(
    figure: go.Figure,
    titles: list[str],
    *,
    columns: int = 2,
    height: int = 300,
    bars: bool = False,
    legend: int = 0,
    left: int = 70,
    gap: int = 84,
    below: int = 56,
    note: str = "",
    least: int = 0,
    low: int = 280,
) -> go.Figure:
    """Places the panels 1, 2, … (axes x/y, x2/y2, …, row by row) in `columns`, and in a single column on a narrow
    screen.

    `height` is one panel's in pixels, `bars` leaves room for a colour bar beside each, `legend` is the number of legend
    entries, `gap` the room between rows, `note` a sentence the report prints under the figure, `least` a width below
    which the page scrolls it sideways, `low` one panel's height on a narrow screen at most."""
    base(figure)
    # Titles of two lines where panels side by side are narrow: on paper, in a small window, and for long titles.
    broken = [title.replace(" · ", "<br>", 1) for title in titles]
    room = (1000 - left) / columns / LETTER
    titles = [whole if len(whole) <= room else two for whole, two in zip(titles, broken, strict=True)]
    wide = _patch(titles, columns, height, bars, legend, left, gap, below, width=1000)
    middle = _patch(broken, columns, height, bars, legend, left, gap, below, width=700)
    narrow = _patch(broken, 1, min(height, low), bars, legend, min(left, 60), gap, below, width=340)
    # Assigned, not updated: an update would merge these into the annotations a figure already has, one by one.
    figure.layout.annotations = [
        {
            "text": f"<b>{title}</b>",
            "xref": "paper",
            "yref": "paper",
            "x": 0,
            "y": 1,
            "xanchor": "left",
            "yanchor": "bottom",
            "align": "left",
            "yshift": 6,
            "showarrow": False,
            "font": {"size": 13, "color": INK},
        }
        for title in titles
    ] + [a.to_plotly_json() for a in figure.layout.annotations]
    figure.update_layout(
        meta={"wide": wide, "middle": middle, "narrow": narrow, "note": note, "least": least}, showlegend=legend > 0
    )
    for path, value in wide.items():
        _assign(figure, path, value)
    return figure


def _patch(
    titles: list[str], columns: int, height: int, bars: bool, legend: int, left: int, gap: int, below: int, width: int
) -> dict[str, Any]:
    count = len(titles)
    columns = max(1, min(columns, count))
    rows = -(-count // columns)
    bar = 62 if bars else 0
    lines = 0 if not legend else (1 + (legend - 1) // 5 if width > 600 else -(-legend // 2))
    margin = {"l": left, "r": 16 + bar, "t": _above(titles), "b": below + 24 * lines}
    inner = width - margin["l"] - margin["r"]
    across = (left + 14 + bar) / inner if columns > 1 else 0.0
    wide = (1 - across * (columns - 1)) / columns
    area = rows * height + (rows - 1) * gap
    patch: dict[str, Any] = {"height": area + margin["t"] + margin["b"], "margin": margin}
    for i in range(count):
        row, column = divmod(i, columns)
        n = "" if i == 0 else str(i + 1)
        x = [column * (wide + across), column * (wide + across) + wide]
        top = 1 - row * (height + gap) / area
        y = [max(0.0, top - height / area), top]
        patch |= {
            f"xaxis{n}.domain": [max(0.0, x[0]), min(1.0, x[1])],
            f"yaxis{n}.domain": y,
            f"annotations[{i}].x": max(0.0, x[0]),
            f"annotations[{i}].y": y[1],
            f"annotations[{i}].text": f"<b>{titles[i]}</b>",
        }
        if bars:
            patch |= {
                f"coloraxis{n}.colorbar.x": min(1.0, x[1]) + 10 / inner,
                f"coloraxis{n}.colorbar.y": (y[0] + y[1]) / 2,
                f"coloraxis{n}.colorbar.len": y[1] - y[0],
            }
    return patch


def _above(titles: list[str]) -> int:
    """Pixels above the first row of panels: room for titles of no, one or two lines."""
    return 14 if not any(titles) else 50 if any("<br>" in title for title in titles) else 34


def _assign(figure: go.Figure, path: str, value: Any) -> None:
    head, _, rest = path.partition(".")
    if head.startswith("annotations["):
        figure.layout.annotations[int(head[12:-1])][rest] = value
    else:
        figure.update_layout({path.replace(".", "_"): value})


def colour_ends(low: float, high: float) -> tuple[float, float]:
    """Where a colour scale of values from `low` to `high` begins and ends: apart, also where there is one value."""
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def star(x: Sequence[Any], y: Sequence[Any], panel: int) -> go.Scatter:
    """The star of the chosen trial, on a map."""
    import plotly.graph_objects as go

    return go.Scatter(
        x=x,
        y=y,
        marker={"symbol": "star", "size": 17, "color": ORANGE, "line": {"width": 1.5, "color": ON_DARK}},
        hoverinfo="skip",
        mode="markers",
        showlegend=False,
        **axes(panel),
    )


def colour_axis(figure: go.Figure, panel: int, low: float, high: float, scale: str = SEQUENTIAL) -> None:
    """The colour scale of panel 1, 2, … from `low` to `high`, with a slim bar beside it."""
    figure.update_layout(
        {
            f"coloraxis{'' if panel == 1 else panel}": {
                "colorscale": scale,
                "cmin": low,
                "cmax": high,
                "colorbar": {
                    "thickness": 10,
                    "outlinewidth": 0,
                    "ticks": "",
                    "tickfont": {"size": 11, "color": MUTED},
                    "xanchor": "left",
                    "xpad": 0,
                    "ypad": 0,
                },
            }
        }
    )


def axes(panel: int) -> dict[str, str]:
    """`{"xaxis": "x2", "yaxis": "y2"}` for panel 2."""
    n = "" if panel == 1 else str(panel)
    return {"xaxis": f"x{n}", "yaxis": f"y{n}"}


def title_axes(figure: go.Figure, panel: int, x: str = "", y: str = "", **details: dict[str, Any]) -> None:
    """Axis titles of a panel; `xaxis={...}` and `yaxis={...}` set more."""
    n = "" if panel == 1 else str(panel)
    figure.update_layout(
        {
            f"xaxis{n}": {"title": {"text": x}, "anchor": f"y{n}"} | details.get("xaxis", {}),
            f"yaxis{n}": {"title": {"text": y}, "anchor": f"x{n}"} | details.get("yaxis", {}),
        }
    )


def rounds_axis(last: float) -> dict[str, Any]:
    """An axis of rounds: whole numbers only."""
    return {"showgrid": False, "tickformat": "d", "dtick": 1 if last <= 12 else None}


def trials_axis(numbers: Sequence[int]) -> dict[str, Any]:
    """An axis of these trials: whole numbers only."""
    few = not len(numbers) or max(numbers) - min(numbers) <= 12
    return {"showgrid": False, "tickformat": "d", "dtick": 1 if few else None}


def log_axis(low: float, high: float) -> dict[str, Any]:
    """A logarithmic axis from `low` to `high` (above 0) with ticks that can be read: powers of ten where it spans two
    of them, else 1, 2 and 5 times these, else round numbers between its ends."""
    ticks = log_ticks(low, high)
    return {"type": "log", "tickmode": "array", "tickvals": ticks, "ticktext": [tick_text(tick) for tick in ticks]}


def log_ticks(low: float, high: float) -> list[float]:
    """At most nine values between `low` and `high`."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = max(1, -(-(last - first) // 8))
    fine = (1, 2, 5), (1, 2, 3, 5, 7), range(1, 10)  # 80 and 90 would lie on one another on a narrow axis
    for steps in ((1,), *fine) if high / low >= 100 else fine:
        powers = range(first, last + 1, every if steps == (1,) else 1)
        found = [float(f"{step}e{power}") for power in powers for step in steps]
        found = [tick for tick in found if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
        if 3 <= len(found) <= 9:
            return found
    return [float(f"{low + (high - low) * part / 3:.3g}") for part in range(4)]


def tick_text(value: float) -> str:
    """`0.001`, `20`, `5·10⁻⁵`; `inf` and `nan` as they are."""
    if not math.isfinite(value):
        return str(value)
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"
    mantissa, exponent = f"{value:.3g}".split("e") if "e" in f"{value:.3g}" else (f"{value:.2e}").split("e")
    power = "10" + str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    short = f"{float(mantissa):g}"
    return power if short == "1" else f"{short}·{power}"
