"""Ticks of logarithmic axes, titles of panels, and colours of texts."""

from __future__ import annotations

import plotly.graph_objects as go
import pytest

from analysis import style
from analysis.style import log_axis, log_ticks, tick_text


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (1e-5, 1e-1, [1e-5, 1e-4, 1e-3, 1e-2, 1e-1]),
        (2e-3, 8e-2, [0.002, 0.005, 0.01, 0.02, 0.05]),
        (8, 64, [10, 20, 50]),
        (16, 91, [20, 30, 50, 70]),
        (0.02, 0.03, [0.02, 0.0233, 0.0267, 0.03]),
        (1e-8, 1e8, [1e-8, 1e-6, 1e-4, 1e-2, 1, 1e2, 1e4, 1e6, 1e8]),
        (0.01, 1, [0.01, 0.1, 1]),
    ],
)
def test_ticks_lie_between_the_ends(low: float, high: float, ticks: list[float]) -> None:
    assert log_ticks(low, high) == pytest.approx(ticks)
    assert log_axis(low, high)["tickvals"] == pytest.approx(ticks)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *[
            (1e-5, "10⁻⁵"),
            (5e-5, "5·10⁻⁵"),
            (20, "20"),
            (0.001, "0.001"),
            (0.05, "0.05"),
            (20000, "20000"),
            (1e6, "10⁶"),
        ],
        *[(float("inf"), "inf"), (1e300, "10³⁰⁰")],
    ],
)
def test_a_tick_is_a_number_that_people_read(value: float, text: str) -> None:
    assert tick_text(value) == text


def test_a_title_that_would_run_into_the_next_panel_has_two_lines() -> None:
    titles = [
        "Global accuracy, validation [%] · selected on · one seed: ± 2.4",
        "Local accuracy, validation [%] · two",
    ]
    beside, alone = (
        style.panels(go.Figure(layout={"xaxis2": {}, "yaxis2": {}}), titles, columns=columns) for columns in (2, 1)
    )
    assert [text.text for text in beside.layout.annotations] == [
        "<b>Global accuracy, validation [%]<br>selected on · one seed: ± 2.4</b>",
        "<b>Local accuracy, validation [%] · two</b>",
    ]
    assert [text.text for text in alone.layout.annotations] == [f"<b>{title}</b>" for title in titles]


@pytest.mark.parametrize(("numbers", "every"), [([0, 3], 1), ([], 1), ([0, 300], None)])
def test_trials_are_numbered_in_whole_numbers(numbers: list[int], every: int | None) -> None:
    axis = style.trials_axis(numbers)
    assert (axis["tickformat"], axis["dtick"]) == ("d", every)
