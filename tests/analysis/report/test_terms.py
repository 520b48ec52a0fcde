"""Abbreviations and signs are explained where they stand, once on every kind of page."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from pathlib import Path

import pytest
from plotly.offline import get_plotlyjs

import fedtune
from analysis.pivots import pivots
from analysis.report.build import document
from analysis.report.comparison import write_figure
from analysis.report.page import Page
from analysis.report.terms import explained, mentioned
from analysis.reproduce.claims import decide
from analysis.reproduce.page import reproduction_page
from analysis.runs import load_run, load_runs
from analysis.tables.compare import compare
from search_spaces.metrics import METRICS
from tests.analysis import synthetic, varied
from tests.analysis.reproduce import folders

AMP, FM, WLP = (METRICS[name].doc for name in ("amp", "fm", "wlp"))
OMEGA = "how evenly classes are spread over clients; small is uneven"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("terms")
    varied.fairness(folder / "a", metric=("amp",))
    varied.fairness(folder / "b", method="fedavg", shift=-0.1, metric=("amp",))
    for name, omega in (("one", 0.1), ("two", 1.0)):
        settings = {"kind": "run", "rounds": 3, "failures": False, "fixed": {"omega": omega}}
        synthetic.write(folder / name, keys=(), seeds=(0, 1), **settings)
    return folder


def of_search(root: Path, tmp_path: Path) -> str:
    return document([load_run(root / "a")])


def of_several(root: Path, tmp_path: Path) -> str:
    return document(load_runs([root / "a", root / "b"]))


def of_compare(root: Path, tmp_path: Path) -> str:
    found = compare([root / "one", root / "two"], metrics=["amp", "fm", "wlp"])
    return write_figure(found, tmp_path / "x.html").read_text()


def of_pivot(root: Path, tmp_path: Path) -> str:
    return pivots([root / "a", root / "b"], metrics=["amp", "fm"], brackets="wlp").page(tmp_path / "x.html").read_text()


def of_one_table(root: Path, tmp_path: Path) -> str:
    return fedtune.load(root / "a").save("pivot", tmp_path / "x.html", metrics=["amp", "fm", "wlp"]).read_text()


def of_one_figure(root: Path, tmp_path: Path) -> str:
    return fedtune.load(root / "a").save("factor", tmp_path / "x.html").read_text()


def of_reproduction(root: Path, tmp_path: Path) -> str:
    made = folders.table(tmp_path / "made")
    return reproduction_page(made, decide(made), "again", finished=True).html()


@pytest.mark.parametrize(
    ("page", "terms"),
    [
        (of_search, (AMP, FM, WLP, OMEGA)),
        (of_several, (AMP, FM, WLP, OMEGA)),
        (of_compare, (AMP, FM, WLP, OMEGA)),
        (of_pivot, (AMP, FM, WLP, OMEGA)),
        (of_one_table, (AMP, FM, WLP, OMEGA)),
        (of_one_figure, (AMP, OMEGA)),
        (of_reproduction, (AMP, FM, WLP, OMEGA)),
    ],
)
def test_a_page_explains_each_of_them_once(
    page: Callable[[Path, Path], str], terms: tuple[str, ...], root: Path, tmp_path: Path
) -> None:
    text = page(root, tmp_path).replace(get_plotlyjs(), "").split('id="page-data"')[0]
    shown = unescape(re.sub(r"<[^>]+>", "", text))
    assert {term: shown.count(term) for term in terms} == dict.fromkeys(terms, 1)


def test_the_axes_of_a_heat_map_are_explained(tmp_path: Path) -> None:
    made = folders.heatmap(tmp_path / "made")
    shown = reproduction_page(made, decide(made), "again", finished=True).html()
    assert "<b>α</b>: Weight of the EMA generator&#x27;s samples." in shown and "<b>λ</b>: Momentum" in shown


def test_other_readouts_are_named_after_the_same_abbreviations() -> None:
    told: set[str] = set()
    assert explained(told, ["val_oca_wlp", "global_accuracy"]) == f'<p class="small"><b>WLP</b>: {WLP}</p>'
    assert explained(told, ["wlp"]) == "" and Page("x").told == set()
    assert mentioned("<td>AMP [%]</td> of ω = 0.1, WLPs, comparison") == (["amp"], ["omega"])
