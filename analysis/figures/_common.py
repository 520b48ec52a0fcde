"""What several figures need of a run: metrics to show side by side, important parameters, samples of trials."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from analysis import style
from analysis.labels import PANEL, SHORTEST, Labels, cut, entry, number, shown
from analysis.runs import Run, run_names
from search_spaces.errors import UserError
from search_spaces.metrics import twin

#: Letters that fit below a panel on a narrow screen.
LETTERS = 40
#: What is said where curves are of validation data alone.
NO_CURVE = (
    "The test set was measured only where a trial may end (eval_test=end), so there is no curve of it; --set "
    "eval_test=every measures it after every round."
)
#: The trial number that stands for the mean of a final run's trials.
MEAN = -1
ACCURACIES = ("global_accuracy", "local_accuracy", "g_acc_virtual")


def of_several_seeds(run: Run, what: str) -> str:
    """What a dot or a line stands for where trials are further seeds of a configuration, as a sentence; else empty."""
    if len(run.first_trials) == len(run.frozen):
        return ""
    return f"{what} is a configuration: the mean of its seeds, without what a seed does to all configurations alike."


def has_result(run: Run) -> bool:
    """Whether a trial ran to its end with a value."""
    return bool(((run.trials["state"] == "COMPLETE") & run.trials["value"].notna()).any())


def results(run: Run) -> pd.DataFrame:
    """The trials that ran to their end with a value; where configurations have further seeds, the first one of each,
    with the mean of its seeds."""
    done = run.trials[(run.trials["state"] == "COMPLETE") & run.trials["value"].notna()]
    done = done[done["number"].isin(run.first_trials)]
    return done.assign(value=done["number"].map(run.levelled[run.metrics[0]])) if run.single else done


def metric_rows(runs: Sequence[Run], measured: Callable[[str], bool]) -> list[list[str]]:
    """Metric names as a table: one column per metric (what was selected on, then the accuracies; two of them),
    first row validation, second row test. Rows and cells that nothing measured are left out."""
    bases: list[str] = []
    for name in (*runs[0].metrics, *ACCURACIES):
        base = name.removeprefix("val_")
        if base not in bases and (measured(base) or measured(f"val_{base}")):
            bases.append(base)
    bases = bases[: max(2, len(runs[0].metrics))]
    rows = [[f"val_{b}" if twin(b) != b else b for b in bases], bases]
    kept = [[m for m in row if measured(m)] for row in rows]
    return [row for i, row in enumerate(kept) if row and row not in kept[:i]]


def shared_metrics(runs: Sequence[Run], of: Callable[[Iterable[bool]], bool] = all) -> list[str]:
    """What was selected on, and accuracies, on test data, as far as all runs measured them; with `any`, one of them."""

    def measured(run: Run, metric: str) -> bool:
        return metric in run.finals.columns and bool(run.finals[metric].notna().any())

    rows = metric_rows(runs, lambda metric: of(measured(run, metric) for run in runs))
    return rows[-1] if rows else []


def box(dots: pd.DataFrame, place: object, name: str, colour: str, panel: int, texts: Sequence[str]) -> go.Box:
    """A box of these dots (columns y and number, the trial) at a place of the axis, and the dots, each with a text."""
    return go.Box(
        x=[place] * len(dots),
        y=dots["y"],
        name=name,
        boxpoints="all",
        jitter=0.4,
        pointpos=0,
        width=0.6,
        whiskerwidth=0.5,
        line={"color": colour, "width": 1.5},
        fillcolor=style.faded(colour, 0.15),
        marker={"color": colour, "size": 5, "opacity": 0.7},
        hoveron="points",
        customdata=dots["number"],
        meta={"trial": "customdata"},
        text=list(texts),
        hovertemplate="%{text}: %{y:.2f}<extra></extra>",
        **style.axes(panel),
    )


def class_dots(
    points: pd.DataFrame, panel: int, called: Callable[[int], str], told: str, *, legend: bool, **marker: Any
) -> list[go.Scatter]:
    """These points (columns class, x, y), a colour for each class. `called`: a class in the legend; `told`: what is
    told of a point after that."""
    return [
        go.Scatter(
            x=own["x"],
            y=own["y"],
            mode="markers",
            name=called(label),
            legendgroup=called(label),
            showlegend=legend,
            marker={"color": style.CYCLE[label % len(style.CYCLE)], **marker},
            hovertemplate=f"{called(label)}{told}<extra></extra>",
            **style.axes(panel),
        )
        for label in sorted(set(points["class"]))
        for own in [points[points["class"] == label]]
    ]


def options_axis(values: Sequence[object]) -> dict[str, Any]:
    """An axis of options, long ones cut. Its places are the whole texts, which dots tell: two that begin alike stay
    two."""
    room = room_of(len(values))
    return named_axis([shown(value) for value in values], [cut(number(value), room) for value in values])


def room_of(run_names: int) -> int:
    """Letters of each of so many names below a panel. Where all of them do not fit side by side, Plotly turns them."""
    return max(SHORTEST, LETTERS // max(1, run_names))


def named_axis(places: Sequence[str], written: Sequence[str]) -> dict[str, Any]:
    """An axis of these places, with what is written at each."""
    ordered = {"type": "category", "categoryorder": "array", "categoryarray": list(places), "showgrid": False}
    return ordered | {"tickmode": "array", "tickvals": list(places), "ticktext": list(written)}


def look(position: int) -> dict[str, Any]:
    """The colour, dashes and dots of the line that is drawn at this position among several."""
    colour = style.CYCLE[position % len(style.CYCLE)]
    return {
        "line": {"width": 2.5, "color": colour, "dash": style.DASHES[position % len(style.DASHES)]},
        "marker": {"size": 8, "color": colour, "symbol": style.SYMBOLS[position % len(style.SYMBOLS)]},
    }


def banded(line: go.Scatter, spread: np.ndarray, panel: int, lines: int) -> list[go.Scatter]:
    """The line, one of so many, and, where any point has several seeds, the band of their spread behind it. Bands of
    more than four lines are fainter, so that together they hide no line."""
    if not np.isfinite(spread).any():
        return [line]
    colour = style.faded(line.line.color, 0.13 * min(1.0, 4 / lines))
    return [style.band(list(line.x), np.asarray(line.y), np.nan_to_num(spread), colour, panel, line.legendgroup), line]


def trial_lines(part: pd.DataFrame, x: str, y: str) -> dict[str, np.ndarray]:
    """Lines of all trials over their rounds as one trace, separated by gaps: thousands of traces would make the page
    crawl. As arrays of few bytes, which Plotly takes over as they are; of a list it looks at every entry."""
    part = part.sort_values(["trial", "round"])
    trial, across = part["trial"].to_numpy(), part[x].to_numpy()
    ends = np.flatnonzero(np.diff(trial, append=trial[-1:] + 1)) + 1
    after = np.maximum(ends - 1, 0)  # a gap has its trial's number and last place
    return {
        "x": np.insert(across, ends, across[after]),
        "y": np.insert(part[y].to_numpy(), ends, np.nan).astype(np.float32),
        "customdata": np.insert(trial, ends, trial[after]),
    }


def faint(lines: int) -> float:
    """How opaque each of so many lines is that are drawn behind a chosen one."""
    return float(np.clip(12 / max(1, lines), 0.38, 0.75))


def check_measured(asked: Sequence[str], drawn: Sequence[tuple[str, str]], runs: Sequence[Run]) -> None:
    """Raises `UserError` where a metric that was asked for has none of the panels `drawn`, each a metric and what else
    it is of."""
    have = {metric for metric, _ in drawn}
    missing = [metric for metric in asked if metric not in have]
    ended = [m for m in missing if any(run.only_at_end(m) for run in runs)]
    if ended:
        raise UserError(
            f"{' and '.join(ended)} was measured only where a trial may end in {', '.join(run_names(runs))}, as "
            f"eval_test is end. Choose --metric {','.join(map(twin, ended))}, or run with --set eval_test=every."
        )
    if missing:
        raise UserError(
            f"{' and '.join(missing)} was not measured in {', '.join(run_names(runs))}. Choose another --metric."
        )


def titled(labels: Labels, metric: str, of: str) -> str:
    """The title of a panel: its metric and, where there is something, what else it is of, cut where it is long."""
    return f"{labels.metric(metric, split=True)}{f' · {entry(html.unescape(of), PANEL)}' if of else ''}"


def draw_panels(
    table: pd.DataFrame,
    by: str,
    names: Sequence[str],
    panels: Sequence[tuple[str, str]],
    labels: Labels,
    draw: Callable[[pd.DataFrame, str, int, int, float], Iterable[Any]],
    axis: Callable[[pd.DataFrame], tuple[str, dict[str, Any]]],
    **layout: Any,
) -> go.Figure:
    """A panel for each metric and what else it is of, and in it a line or box for each of `names`, the values of the
    column `by`; the column `panel` counts panels from 0. `draw`: the traces of one name's rows, by its position among
    `names`, its panel from 1 and the scale of the metric. `axis`: the title of a panel's horizontal axis, and its
    details. Each name stands once in the legend. `layout`: what `style.panels` is told otherwise."""
    figure = go.Figure()
    for panel, (metric, _) in enumerate(panels, start=1):
        part = table[table["panel"] == panel - 1]
        for position, name in enumerate(names):
            own = part[part[by] == name]
            if len(own):
                figure.add_traces(list(draw(own, name, position, panel, labels.scale(metric))))
        title, details = axis(part)
        style.title_axes(figure, panel, title, xaxis=details)
    seen: set[str] = set()
    for trace in figure.data:
        if trace.showlegend is None:
            trace.showlegend = trace.legendgroup not in seen
            seen.add(trace.legendgroup)
    usual = {"columns": min(2, len(panels)), "legend": 2 * len(names) if len(names) > 1 else 0, "left": 52}
    return style.panels(figure, [titled(labels, metric, of) for metric, of in panels], **usual | layout)


def plain(values: pd.Series) -> list[Any]:
    """The values as Plotly reads them: options and flags as text."""
    return [shown(v) if isinstance(v, (bool, str)) else v for v in values.tolist()]


def searched_axis(labels: Labels, key: str, values: pd.Series) -> dict[str, Any]:
    """An axis over all that was searched, so that unexplored corners show."""
    if not labels.numeric(key):
        return options_axis(labels.options(key))
    low, high = labels.bounds(key) or (float(values.min()), float(values.max()))
    log = labels.log(key)
    ends = np.log10([low, high]) if log else np.array([low, high])
    pad = 0.04 * float(ends[1] - ends[0]) or 0.5
    return (style.log_axis(low, high) if log else {}) | {"range": [float(ends[0]) - pad, float(ends[1]) + pad]}


def two_keys(run: Run, among: Sequence[str] | None = None) -> tuple[str, str, str]:
    """The two searched parameters to draw, of these or of all, and a sentence on how they were chosen (empty where
    there are only two)."""
    given = list(run.keys if among is None else among)
    keys = [k for k in given if len({t.params.get(k) for t in run.frozen if k in t.params}) > 1] or list(given)
    keys += [k for k in given if k not in keys]
    if len(keys) <= 2:
        return keys[0], keys[-1], ""
    ranked = [k for k in run.importances[0] if k in keys]
    picked = [k for k in keys if k in ranked[:2]] if len(ranked) >= 2 else keys[:2]
    why = (
        "the two most important ones (PED-ANOVA)"
        if len(ranked) >= 2
        else "the first two, as there are too few trials to tell which matter most"
    )
    return picked[0], picked[1], f"Of {len(keys)} searched parameters it shows {why}."


def most_important(run: Run, limit: int) -> tuple[list[str], str]:
    """At most `limit` searched parameters, and a sentence on which these are; empty where they are all."""
    keys = list(run.keys)
    if len(keys) <= limit:
        return keys, ""
    ranked = [key for key in run.importances[0] if key in keys]
    ranked += [key for key in keys if key not in ranked]
    which = (
        "most important ones (PED-ANOVA)" if run.importances[0] else "first ones, as trials are too few to rank them"
    )
    return ranked[:limit], f"Of {len(keys)} parameters the {limit} {which} are drawn."


def sample(numbers: Sequence[int], limit: int, keep: Sequence[int] = ()) -> list[int]:
    """At most `limit` of the numbers, evenly spread, and those of `keep` in any case."""
    if len(numbers) <= limit:
        return list(numbers)
    picked = {numbers[int(i)] for i in np.linspace(0, len(numbers) - 1, limit)} | (set(keep) & set(numbers))
    return sorted(picked)
