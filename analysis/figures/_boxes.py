"""Box plots of several runs: a box per row, a panel per metric and condition."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from analysis import style
from analysis.cells import Cells, condition_label
from analysis.figures._common import legend_once
from analysis.labels import Labels, text

TITLE = "Spread"
READ = (
    "A dot is a completed trial with one seed, in its last round; a box spans the middle half of its dots, its line is "
    "the median.",
    "Of a search a box holds every configuration that ran to its end there, so a long box is a method that its "
    "parameters matter to; of a final run it holds the seeds.",
)


def boxes(found: Cells, metrics: Sequence[str], labels: Labels) -> go.Figure:
    """The figure. Its dots are all completed trials of a row under a condition, each seed one."""
    figure = go.Figure()
    titles: list[str] = []
    for metric in metrics:
        for condition in found.conditions:
            of = ", ".join(condition_label(labels, k, v) for k, v in zip(found.by, condition, strict=True))
            at = len(titles) + 1
            titles.append(f"{labels.metric(metric, split=True)}, {of}")
            for i, row in enumerate(found.rows):
                cell = found.of(row, condition)
                if cell is None:
                    continue
                dots = [
                    (trial.number, seed, labels.scale(metric) * value)
                    for trial in cell.part.frozen
                    for seed, value in cell.part.last(trial.number, metric).items()
                ]
                figure.add_trace(_box(dots, row, i, at))
            style.title_axes(figure, at, "", "", xaxis={"showgrid": False, "showticklabels": False, "ticks": ""})
    legend_once(figure)
    return style.panels(
        figure,
        titles,
        columns=min(2, len(found.conditions)),
        height=260,
        legend=2 * len(found.rows),
        left=48,
        gap=64,
        below=24,
    )


def _box(dots: Sequence[tuple[int, int, float]], row: str, position: int, panel: int) -> go.Box:
    colour = style.CYCLE[position % len(style.CYCLE)]
    return go.Box(
        x=[position] * len(dots),
        y=[value for _, _, value in dots],
        name=text(row),
        legendgroup=row,
        boxpoints="all",
        jitter=0.4,
        pointpos=0,
        width=0.6,
        whiskerwidth=0.5,
        line={"color": colour, "width": 1.5},
        fillcolor=style.faded(colour, 0.15),
        marker={"color": colour, "size": 5, "opacity": 0.7, "symbol": style.SYMBOLS[position % len(style.SYMBOLS)]},
        hoveron="points",
        text=[f"{text(row)}<br>trial {number}, seed {seed}" for number, seed, _ in dots],
        hovertemplate="%{text}: %{y:.2f}<extra></extra>",
        **style.axes(panel),
    )
