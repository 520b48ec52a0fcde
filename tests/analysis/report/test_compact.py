"""Numbers of figures on a page: shorter by what nobody can see, and by nothing else."""

from __future__ import annotations

import base64
import copy
import json
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from analysis.report.page import PART, Page, compact


def plain(figure: go.Figure) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(figure.to_json())
    return found


def unpacked(array: Any) -> np.ndarray:
    if isinstance(array, list):
        return np.array([np.nan if value is None else value for value in array])
    return np.frombuffer(base64.b64decode(array["bdata"]), dtype=array["dtype"])


@pytest.mark.parametrize(
    "values",
    [
        np.random.default_rng(0).uniform(0, 100, 50),
        10 ** np.random.default_rng(1).uniform(-12, 12, 50),
        # Between two whole numbers, far from zero: six digits of these would all be the same.
        1e6 + np.random.default_rng(2).uniform(0, 1, 50),
        1e9 + np.random.default_rng(3).uniform(0, 1e-3, 50),
        np.array([5.0, 5.0 + 1e-15, np.nan]),
        np.array([0.0, 1e-300, 1e300]),
        np.array([np.nan, np.nan]),
        np.array([]),
    ],
    ids=["even", "on a logarithmic axis", "far from zero", "very far", "rounding alone", "huge", "none", "empty"],
)
@pytest.mark.parametrize("listed", [True, False], ids=["listed", "packed"])
def test_no_more_than_a_part_of_a_number_and_of_the_span_is_left_out(values: np.ndarray, listed: bool) -> None:
    figure = {"data": [{"y": [None if v != v else v for v in values.tolist()]}]}
    if not listed:
        figure = plain(go.Figure(go.Scatter(y=values)))
        assert not len(values) or "bdata" in figure["data"][0]["y"]
    (trace,) = compact(figure)["data"]
    found = unpacked(trace["y"])
    assert len(found) == len(values) and (np.isnan(found) == np.isnan(values)).all()
    there = ~np.isnan(values)
    wrong, seen = np.abs(found - values)[there], values[there]
    assert (wrong <= PART * np.abs(seen)).all()
    assert not len(seen) or wrong.max() <= PART * np.ptp(seen)


def test_a_number_takes_fewer_signs() -> None:
    values = np.random.default_rng(0).uniform(0, 100, 1000)
    packed, listed = plain(go.Figure(go.Scatter(y=values))), {"data": [{"x": values.tolist()}]}
    for figure in (packed, listed):
        before = len(json.dumps(figure["data"]))
        assert len(json.dumps(compact(figure)["data"])) < 0.6 * before


def test_whole_numbers_texts_gaps_and_all_but_the_drawn_arrays_stay() -> None:
    trace = {
        "x": [123456789, "mul", None, True, 0.1234567891],
        "y": ["2026-11-25T09:00:00.123456", None, 1234567890],
        "z": [[1, None], ["a", 2.0]],
        "customdata": [0.12345678901, 17],
        "text": ["0.12345678901"],
    }
    (found,) = compact({"data": [copy.deepcopy(trace)]})["data"]
    assert found["x"] == [123456789, "mul", None, True, 0.123457]
    assert {name: found[name] for name in found if name != "x"} == {n: trace[n] for n in trace if n != "x"}
    numbers = plain(go.Figure(go.Scatter(x=np.arange(1000), customdata=np.linspace(0, 1, 9))))
    assert compact(copy.deepcopy(numbers)) == numbers


def test_figures_of_a_page_are_compact() -> None:
    figure = go.Figure(go.Scatter(y=np.linspace(0, 1, 9)))
    page = Page("A page")
    page.figure("one", "One", figure, [])
    page.figures_of("two", "Two", [("first", figure)], [])
    assert {name: one["data"][0]["y"]["dtype"] for name, one in page.figures.items()} == {"one": "f4", "two-0": "f4"}
