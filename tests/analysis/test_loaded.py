"""`fedtune.load`: figures and tables by name, from Python and as files."""

from __future__ import annotations

import builtins
import csv
import io
from pathlib import Path
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import pytest
from plotly.offline import get_plotlyjs
from typer.testing import CliRunner

import fedtune
from fedtune.cli import app
from search_spaces.errors import UserError
from tests.analysis import synthetic, varied
from tests.analysis.browser import CHROMIUM


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("loaded")
    varied.fairness(folder / "varied")
    synthetic.write(folder / "grid", sampler="grid", rounds=2)
    return folder


def test_a_figure_is_a_plotly_figure_and_a_table_a_frame(root: Path) -> None:
    found = fedtune.load(root / "grid")
    assert isinstance(found.figure("heatmap"), go.Figure)
    trials = found.table("trials")
    assert isinstance(trials, pd.DataFrame) and len(trials) == 30 and {"trial", "alpha", "lambda"} <= set(trials)
    assert {"heatmap", "factor", "trials", "pivot"} <= set(found.names)


def test_tables_of_a_run_under_conditions(root: Path) -> None:
    found = fedtune.load(root / "varied")
    pivot = found.table("pivot", metrics=["amp"], variants=["merge_op"]).set_index(["row", "omega"])
    for place, omega in enumerate(varied.OMEGAS):
        mean, std = varied.mean_std(varied.last(root / "varied", place + 3, "amp"))
        row = pivot.loc[("dfrd, merge_op = add", omega)]
        assert (row["mean"], row["std"], row["unit"]) == (pytest.approx(mean), pytest.approx(std), "fraction")
    best = found.table("conditions")
    assert list(best["omega"]) == [10.0, 1.0, 0.1]
    for row in best.to_dict("records"):
        mean, std = varied.mean_std(varied.last(root / "varied", row["trial"], "global_accuracy"))
        assert (row["global_accuracy"], row["global_accuracy:std"]) == (pytest.approx(mean), pytest.approx(std))
        assert row["low"] < row["val_global_accuracy"] < row["high"] < 1


@pytest.mark.parametrize("name", ["trials", "conditions", "pivot"])
def test_files_hold_fractions_and_say_so_and_what_people_read_is_in_per_cent(
    root: Path, tmp_path: Path, name: str
) -> None:
    """Of every table: the accuracies that the CSV file has, by a hundred, stand in the Markdown."""
    found = fedtune.load(root / "varied")
    written = found.save(name, tmp_path / "x.csv").read_text()
    rows = list(csv.DictReader(io.StringIO(written)))
    units = "global_accuracy [fraction]" in rows[0] or all(row["unit"] == "fraction" for row in rows)
    assert units and "%" not in written.replace("90 %", "")
    key = {"trials": "global_accuracy [fraction]", "conditions": "global_accuracy [fraction]", "pivot": "mean"}
    values = [float(row[key[name]]) for row in rows]
    assert all(0 < value < 1 for value in values)
    read = found.save(name, tmp_path / "x.md").read_text()
    assert all(f"{100 * value:.2f}" in read for value in values)
    keys = [head.removesuffix(" [fraction]").removesuffix(" [s]") for head in rows[0]]
    assert keys == list(found.table(name).columns), "a frame has the same columns"


def test_a_figure_of_one_condition_is_chosen(root: Path) -> None:
    found = fedtune.load(root / "varied")
    with pytest.raises(UserError, match=r"box is drawn for one.*--where omega=10\. .*: omega=10; omega=1; omega=0\.1"):
        found.figure("box")
    drawn = found.figure("box", where={"omega": 0.1})
    drawn_values = [v for trace in drawn.data for v in trace.y]
    numbers = [(n, m) for n in (2, 5) for m in ("global_accuracy", "local_accuracy")]
    expected = [100 * v for n, m in numbers for v in varied.last(root / "varied", n, m).values()]
    assert sorted(drawn_values) == pytest.approx(sorted(expected))
    assert isinstance(found.figure("factor"), go.Figure)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda run: run.figure("heatmapp"), "Unknown figure 'heatmapp'"),
        (lambda run: run.figure("factor"), "needs trials under two conditions"),
        (lambda run: run.table("trialss"), "Unknown table 'trialss'"),
        (lambda run: run.table("trials", by=["omega"]), "The table trials takes no options, got by"),
        (lambda run: run.save("nothing", "x.png"), "Unknown figure or table 'nothing'"),
        (lambda run: run.save("heatmap", "x.csv"), "format must be one of png, svg, pdf, html, got 'csv'"),
        (lambda run: run.save("trials", "x"), "format must be one of png, svg, pdf, csv, tex, md, html, got ''"),
    ],
)
def test_what_cannot_be_had_is_said(root: Path, call: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        loaded = fedtune.load(root / "grid")
        call(loaded)


def test_an_empty_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no table conditions: no trial has completed yet"):
        fedtune.load(varied.fairness(tmp_path / "begun", cells=0)).table("conditions")


def test_a_figure_on_the_command_line(root: Path, tmp_path: Path) -> None:
    def call(*words: object) -> Any:
        return CliRunner().invoke(app, ["figure", str(words[0]), str(root / "varied"), *map(str, words[1:])])

    found = call("curves", "--where", "omega=0.1", "-o", tmp_path / "curves.html")
    assert found.exit_code == 0 and 'data-figure="figure"' in (tmp_path / "curves.html").read_text()
    assert not (root / "varied" / "report.html").exists(), "the whole report is not written"
    for words, said in [
        (("curves",), "Name it with -o"),
        (("curves", "--where", "omega", "-o", "x.html"), "--where must be name=value"),
        (("curves", "--where", "omega=", "-o", "x.html"), "--where must be name=value"),
        (
            ("curves", "--metric", "amp", "-o", "x.html"),
            "curves chooses its metrics itself. ",
        ),
        (
            ("rounds", "--metric", "amq", "-o", "x.html"),
            "Unknown metric 'amq' (--metric). Did you",
        ),
        (("rounds", "--metric", "psnr", "-o", "x.html"), "psnr was not measured in varied"),
        (("factor", "--metric", "psnr", "-o", "x.html"), "psnr was not measured in varied"),
        (("rounds", "--by", "omega", "-o", "x.html"), "belong to the table pivot, got rounds"),
        (("rounds", "--format", "png", "-o", "x.html"), "format must be html, as x.html ends so, got 'png' (--format)"),
    ]:
        assert said in str(call(*words).exception)


def test_the_options_of_a_table_and_of_a_figure_on_the_command_line(root: Path, tmp_path: Path) -> None:
    def text(*words: object) -> str:
        path = tmp_path / "made"
        found = CliRunner().invoke(
            app, ["figure", str(words[0]), str(root / "varied"), "-o", str(path), *map(str, words[1:])]
        )
        assert found.exit_code == 0, found.exception
        return path.read_text()

    table = ("pivot", "--format", "md", "--metric", "amp", "--variant", "merge_op", "--brackets", "wlp")
    made = text(*table, "--by", "omega")
    (row,) = [line for line in made.splitlines() if "op = add" in line]
    for place in range(3):
        mean, std = varied.mean_std(varied.last(root / "varied", 3 + place, "amp"))
        inside, _ = varied.mean_std(varied.last(root / "varied", 3 + place, "wlp"))
        assert f"{100 * mean:.2f} ± {100 * std:.2f} ({100 * inside:.2f}" in row
    for name in ("rounds", "factor"):
        titles = [one.text for one in fedtune.load(root / "varied").figure(name, metrics=["fm"]).layout.annotations]
        assert titles and all(title.startswith("<b>FM") for title in titles)
        drawn = text(name, "--metric", "fm", "--format", "html").replace(get_plotlyjs(), "")
        assert "FM" in drawn and "Global accuracy, test" not in drawn


def test_without_kaleido_the_sentence_says_how_to_get_it(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "kaleido":
            raise ImportError(name)
        return true(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UserError, match=r"Pictures need the package kaleido.*pip install 'fedtune\[images\]'"):
        fedtune.load(root / "grid").save("heatmap", tmp_path / "x.png")


def test_without_a_browser_one_sentence_says_so(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pio = pytest.importorskip("plotly.io")

    def nothing(*args: Any, **options: Any) -> None:
        raise RuntimeError("Kaleido requires Google Chrome to be installed.")

    monkeypatch.setattr(pio, "write_images", nothing)
    with pytest.raises(UserError, match=r"^Pictures are drawn by a Chrome or Chromium browser, and none was found\. "):
        fedtune.load(root / "grid").save("heatmap", tmp_path / "x.png")
    assert not (tmp_path / "x.png").exists()


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
@pytest.mark.parametrize(
    ("name", "kind", "begin"), [("heatmap", "png", b"\x89PNG"), ("trials", "svg", b"<svg"), ("heatmap", "pdf", b"%PDF")]
)
def test_pictures(root: Path, tmp_path: Path, name: str, kind: str, begin: bytes) -> None:
    path = fedtune.load(root / "grid").save(name, tmp_path / f"x.{kind}")
    assert path.read_bytes().startswith(begin)
    if kind == "png":
        from PIL import Image

        drawn = fedtune.load(root / "grid").figure(name)
        assert Image.open(path).size == (2 * 1000, 2 * drawn.layout.height), "the size of the figure, twice as fine"
