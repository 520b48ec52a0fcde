"""Values in prose: one unit for one number."""

from __future__ import annotations

import pytest

from analysis.labels import LEGEND, PANEL, Labels, cut, entry, size, told
from search_spaces.dimension import Dimension
from search_spaces.space import dimension_to_json
from trainables import registry


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (812, "812 bytes"),
        (999.6, "1 kB"),
        (120_000, "120 kB"),
        (5_480_000, "5.48 MB"),
        (5_500_000, "5.5 MB"),
        (999_600_000, "1 GB"),
        (23.4e9, "23.4 GB"),
    ],
)
def test_sizes(count: float, shown: str) -> None:
    assert size(count) == shown


@pytest.mark.parametrize(
    ("metric", "value", "shown"),
    [
        ("val_global_accuracy", 0.8123, "81.23 %"),
        ("wlp", 0.5, "50.00 %"),
        ("fm", 0.0041, "0.0041"),
        ("global_loss", 0.41234, "0.4123 nats"),
        ("bytes_up", 5_500_000.0, "5.5 MB"),
        ("amp", float("nan"), "–"),
    ],
)
def test_values_in_prose(metric: str, value: float, shown: str) -> None:
    assert told(metric, value) == shown


def test_an_option_is_called_by_its_name_beside_its_own() -> None:
    declared = {"names": {"oca": "with <T1>"}}
    labels = Labels({"readout": {"key": "readout", "declared": declared}, "lambda": {"key": "lambda", "symbol": "λ"}})
    assert labels.setting("readout", "oca") == "readout = oca (with &lt;T1&gt;)"
    assert labels.setting("readout", "aca") == "readout = aca"
    assert labels.setting("lambda", 0.5) == "λ = 0.5"
    # A run that somebody edited may hold anything.
    for odd in ({}, {"names": None}, {"names": ["oca"]}, None, 3):
        assert Labels({"readout": {"declared": odd}}).setting("readout", "oca") == "readout = oca"


def test_with_and_without_the_cache_are_named() -> None:
    parameter = registry.declared("fedavg")["readout"]
    labels = Labels({"readout": dimension_to_json(Dimension.of(parameter))})
    assert labels.setting("readout", "oca") == "readout = oca (with T1)"
    assert labels.setting("readout", "aca") == "readout = aca (without T1)"


def test_a_long_name_is_cut_before_it_is_written_as_html() -> None:
    assert cut("<b>", 3) == "&lt;b&gt;" and cut("<b>x", 3) == "&lt;b…" and cut("a \x1bb", 20) == "a \\u001bb"
    assert entry("x" * LEGEND) == "x" * LEGEND
    first, last = entry("run " * 20 + "α = 1"), entry("run " * 20 + "α = 2")
    assert first != last and len(first) <= LEGEND and first.startswith("run run") and first.endswith("α = 1")


def test_a_long_symbol_or_label_is_cut_and_its_key_and_unit_are_kept() -> None:
    alike = {key: {"key": key, "label": "The learning rate of the generator that " + key, "unit": "s"} for key in "ab"}
    labels = Labels({"lambda": {"symbol": "λ"}, "long": {"symbol": "<" * 60}, **alike})
    assert labels.heading("lambda") == labels.stacked("lambda", 16) == labels.parameter("lambda") == "λ (lambda)"
    assert labels.heading("long") == "&lt;" * (PANEL - len(" (long)") - 1) + "… (long)"
    assert labels.heading("a") == "The learning rate of the ge… (a) [s]" and labels.heading("b").endswith("… (b) [s]")
    lines = labels.stacked("a", 16).split("<br>")
    assert lines == ["The learning", "rate of the gen…", "(a)", "[s]"]
    assert len(labels.symbol("long", 10).replace("&lt;", "<")) == 10 and labels.symbol("long") == "&lt;" * 60
