"""Ticks of logarithmic axes, titles of panels, and colours of texts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from plotly.colors import hex_to_rgb, sample_colorscale, unlabel_rgb

from analysis import style
from analysis.figures import figures
from analysis.labels import Labels
from analysis.runs import Run
from analysis.style import log_axis, log_ticks, tick_text


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (1e-5, 1e-1, [1e-5, 1e-4, 1e-3, 1e-2, 1e-1]),
        (2e-3, 8e-2, [0.002, 0.005, 0.01, 0.02, 0.05]),
        (8, 64, [10, 20, 50]),
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


def contrast(one: str, other: str) -> float:
    """As WCAG 2 defines it; from 4.5 on small text is readable."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    dark, bright = sorted((luminance(one), luminance(other)))
    return (bright + 0.05) / (dark + 0.05)


def colours_of_texts(value: Any, font: bool = False) -> Iterator[str]:
    """The colours of all fonts of a figure; of those on cells, which have a list of them, none."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if font and key == "color" and isinstance(inner, str):
                yield inner
            yield from colours_of_texts(inner, key in ("font", "tickfont", "textfont"))
    elif isinstance(value, list):
        for inner in value:
            yield from colours_of_texts(inner)


def test_contrast_is_that_of_the_definition() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.478, abs=1e-3)


def test_texts_of_figures_can_be_read_on_the_light_and_on_the_dark_page(loaded: dict[str, Run]) -> None:
    """The page swaps a colour of one palette for that of the same name in the other, so each must be of a palette."""
    names = {colour: name for name, colour in style.LIGHT.items()}
    found: dict[str, set[str]] = {}
    for run in (loaded["grid"], loaded["wide"], loaded["pareto"]):
        for title, figure in figures().items():
            if not figure.many and figure.needs([run]) is None:
                drawn = json.loads(figure.draw([run], Labels.of([run])).to_json())
                drawn["layout"].pop("template", None)
                for colour in colours_of_texts(drawn):
                    found.setdefault(colour, set()).add(title)
    assert len(found) >= 2 and set(found) <= set(names), found
    for colour, titles in found.items():
        for palette in (style.LIGHT, style.DARK):
            assert contrast(palette[names[colour]], palette["paper"]) >= 4.5, (names[colour], titles)


@pytest.mark.parametrize("ends", [(0.0, 1.0), (-3.0, 90.0)])
def test_what_is_drawn_on_a_colour_of_the_scale_can_be_read(ends: tuple[float, float]) -> None:
    """Computed anew from the colours: at least 4.5 to 1, also in the middle of the scale."""
    values = np.linspace(*ends, 1000)

    def light(colour: Sequence[float]) -> float:
        r, g, b = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in np.array(colour) / 255)
        return float(0.2126 * r + 0.7152 * g + 0.0722 * b)

    for colour, value in zip(style.readable(values, *ends), values, strict=True):
        place = (value - ends[0]) / (ends[1] - ends[0])
        (behind,) = sample_colorscale(style.SEQUENTIAL, [min(1.0, place)])
        dark, bright = sorted((light(unlabel_rgb(behind)), light(hex_to_rgb(colour))))
        assert (bright + 0.05) / (dark + 0.05) >= 4.5, f"{colour} on {behind}"


@pytest.mark.parametrize(("numbers", "every"), [([0, 3], 1), ([], 1), ([0, 300], None)])
def test_trials_are_numbered_in_whole_numbers(numbers: list[int], every: int | None) -> None:
    axis = style.trials_axis(numbers)
    assert (axis["tickformat"], axis["dtick"]) == ("d", every)
