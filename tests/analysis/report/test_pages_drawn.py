"""Pages of comparisons, of final runs and of searches over several methods, and a report with a trial opened, as a
browser draws them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from analysis.pivots import pivots
from analysis.report import build
from analysis.report.comparison import write_figure
from analysis.runs import load_runs
from analysis.tables.compare import compare
from search_spaces import run_folder
from tests.analysis import several, synthetic, varied
from tests.analysis.browser import BROWSER, Shown
from tests.analysis.report.test_drawn import VIEWS, faults

pytestmark = BROWSER

#: Which figures and pivot tables every page has.
FIGURES = {
    "sides": {"rounds"},
    "conditions": {"factor", "rounds", "boxes"},
    "panels": {"factor", "rounds", "boxes"},
    "generators": {"rounds"},
    "final": {"curves", "partition"},
    "auto": {"auto-leaderboard", "auto-budget", "auto-expected"},
}


@pytest.fixture(scope="module")
def pages(root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    top = tmp_path_factory.mktemp("pages")
    methods = {"dfrd": 0.0, "fedavg": -0.08, "fedprox-with-a-longer-name": -0.1, "fedkf": -0.15, "moon": -0.2}
    for name, shift in methods.items():
        varied.fairness(top / "fair" / name, method=name.partition("-")[0], shift=shift)
        varied.crossed(top / "crossed" / name, method=name.partition("-")[0], shift=shift)
    fair, crossed = (sorted((top / part).iterdir()) for part in ("fair", "crossed"))
    sides = compare(load_runs([root / "final", root / "other", root / "tpe"]))
    three = pivots(fair, metrics=["amp", "fm", "wlp"], by=["omega"], variants=["merge_op"])
    places = {name: top / f"{name}.html" for name in FIGURES}
    write_figure(sides, places["sides"])
    three.page(places["conditions"])
    pivots(crossed, by=["omega", "dataset"], brackets="local_accuracy").page(places["panels"])
    generators = [with_gd_loss(top / "generators" / name) for name in ("fedcg", "fedmdcg")]
    write_figure(compare(load_runs(generators), metrics=["gd_loss"]), places["generators"])
    build(root / "final", places["final"])
    build(several.write(top / "auto"), places["auto"])
    return places | {"trial": build(root / "tpe", top / "trial.html")}


def with_gd_loss(folder: Path) -> Path:
    """A run of three seeds whose generators and classifiers agree the better the longer they are trained."""
    synthetic.write(folder, keys=(), seeds=(1000, 1001, 1002), kind="run", failures=False, method=folder.name)
    for file in folder.rglob(run_folder.ROUNDS):
        rows = [json.loads(line) for line in file.open()]
        losses = [row | {"gd_loss": 2.3 / row["round"] + 0.1 * (row["seed"] % 10)} for row in rows]
        file.write_text("".join(json.dumps(row) + "\n" for row in losses))
    return folder


@pytest.mark.covering
@VIEWS
@pytest.mark.parametrize("name", FIGURES)
def test_nothing_is_clipped_overlaps_or_is_hard_to_read(
    name: str, width: int, dark: bool, paper: bool, pages: dict[str, Path], browser: Shown
) -> None:
    assert faults(browser, pages[name], width, dark, paper) == []
    assert FIGURES[name] <= set(re.findall(r'data-figure="([\w-]+)"', pages[name].read_text()))


@pytest.mark.covering
@VIEWS
@pytest.mark.parametrize("number", [0, 8, 9], ids=["completed", "diverged", "failed at once"])
def test_a_trial_that_is_opened_can_be_read(
    number: int, width: int, dark: bool, paper: bool, pages: dict[str, Path], browser: Shown
) -> None:
    """On paper it is not there: the page is as it would be without it."""
    assert faults(browser, pages["trial"], width, dark, paper, f"#trial={number}") == []
    shown = "[...document.querySelectorAll('#trial h2')].map((e) => e.getClientRects().length && e.textContent)"
    assert browser.value(shown) == [0 if paper else f"Trial {number}"]
