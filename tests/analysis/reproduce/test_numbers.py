"""What a page says of single numbers: verdicts, explanations, and whether the rows stand in the paper's order."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from scipy.stats import kendalltau

from analysis.reproduce import tables
from analysis.reproduce.claims import decide
from analysis.reproduce.declaration import declared
from analysis.reproduce.folder import Made, ReproductionRecord, Setting
from analysis.reproduce.page import reproduction_page
from analysis.reproduce.tables import disagreements, every_number, explanation, numbers, orders
from search_spaces.errors import UserError
from tests.analysis.reproduce.test_claims import SEEDS, Cell

#: FedMD-CG's Table 5 on Fashion-MNIST, which is its Table 16: local accuracy, ω = 10.
SETTING = Setting("fmnist", "lenet_code_64", 10, 100, 5)
ENTRY = {"table": "fedmdcg-table5", "dataset": "fmnist", "rows": ["div0"], "columns": {"omega": [10]}, "says": "Tried."}


def made(values: Mapping[str, list[float]], metric: str = "local_accuracy") -> Made:
    """The table with these values under ω = 10, by row."""
    runs: Any = {
        (row, (10,)): Cell(row, {metric: dict(zip(SEEDS, each, strict=False))}) for row, each in values.items()
    }
    record = ReproductionRecord("fedmdcg-table5", "paper", SETTING, SETTING, {"omega": "ω"})
    return Made(Path("x"), record, declared("fedmdcg-table5"), runs)


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An entry in a file of explanations."""
    path = tmp_path / "explanations.yaml"
    path.write_text(yaml.safe_dump({"explanations": [ENTRY]}))
    monkeypatch.setattr(tables, "EXPLANATIONS", path)
    return path


def paper(one: Made) -> dict[str, float]:
    """The paper's local accuracies under ω = 10, by row."""
    return {
        n.row: n.paper.mean
        for n in every_number(one)
        if n.paper is not None and (n.place, n.metric) == ((10,), "local_accuracy")
    }


def test_a_disagreement_stands_with_its_explanation_or_without(written: Path) -> None:
    theirs = paper(made({}))
    near, far = theirs["div1"] / 100, 0.5
    one = made({"div0": [far, far + 0.001], "div1": [near, near + 0.001], "div2": [far]})
    found = {n.row: n for n in every_number(one) if n.ours.n}
    assert {row: n.verdict for row, n in found.items()} == {"div0": "disagrees", "div1": "agrees", "div2": "disagrees"}
    assert [row["why"] for row in disagreements(one).rows] == ["Tried.", "not explained"]
    said = html.unescape(reproduction_page(one, decide(one), "again", finished=False).html())
    assert "Of 18 numbers 1 agree, 2 disagree and 0 cannot be told; 15 have not been run." in said
    assert "Tried." in said and "not explained" in said
    lines = {row["row"]: row for row in numbers(one).rows if row["n"]}
    assert lines["div2"]["difference"] == pytest.approx(far - theirs["div2"] / 100)
    assert [lines[row]["explanation"] for row in ("div0", "div1", "div2")] == ["Tried.", "", "not explained"]


def test_fewer_rounds_show_a_difference_and_no_verdict() -> None:
    short = Setting("fmnist", "lenet_code_64", 10, 20, 5)
    one = made({"div0": [0.5, 0.501]})
    one = Made(one.path, ReproductionRecord("fedmdcg-table5", "paper", short, SETTING, {}), one.reproduction, one.runs)
    judged = next(n.judged for n in every_number(one) if n.ours.n)
    assert (judged.verdict, judged.reason) == ("cannot be told", "20 of 100 rounds")
    assert judged.difference < -20 and math.isnan(judged.p)


def test_the_order_of_rows_is_kendalls() -> None:
    theirs = paper(made({}))
    ranked = sorted(theirs, key=lambda row: theirs[row])
    same = orders(made({row: [0.1 * k] for k, row in enumerate(ranked, 1)}))
    assert [(o.metric, o.place, o.tau, o.rows, o.of) for o in same] == [("local_accuracy", (10,), 1.0, 3, 3)]
    swapped = orders(made(dict(zip(ranked, ([0.2], [0.1], [0.3]), strict=True))))
    assert swapped[0].tau == pytest.approx(kendalltau([0.2, 0.1, 0.3], [1, 2, 3]).statistic) == pytest.approx(1 / 3)
    two = orders(made({row: [0.1 * k] for k, row in enumerate(ranked[:2], 1)}))
    assert two[0].rows == 2 and math.isnan(two[0].tau), "two rows have no order to speak of"


def test_an_explanation_holds_of_its_cells_alone(written: Path) -> None:
    one = declared("fedmdcg-table5")
    cells = [("div0", (10,)), ("div1", (10,)), ("div0", (1,))]
    assert [explanation(one, "fmnist", *cell, "local_accuracy") for cell in cells] == ["Tried.", "", ""]
    assert explanation(one, "cifar10", "div0", (10,), "local_accuracy") == ""
    assert explanation(declared("fedmdcg-table1"), "fmnist", "div0", (10,), "local_accuracy") == ""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"table": "fedmdcg-table55"}, "Unknown table 'fedmdcg-table55'"),
        ({"dataset": "svhn"}, "Unknown dataset 'svhn'"),
        ({"rows": ["div3"]}, "Unknown row 'div3'"),
        ({"columns": {"omga": [10]}}, "Unknown column 'omga'"),
        ({"columns": {"omega": [100]}}, "Unknown omega '100'"),
        ({"metrics": ["psnr"]}, "Unknown metric 'psnr'"),
        ({"row": ["div0"]}, "Unknown key 'row'"),
        ({"says": 3}, "must be a list of entries"),
    ],
)
def test_an_explanation_of_no_cell_is_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    path = tmp_path / "explanations.yaml"
    path.write_text(yaml.safe_dump({"explanations": [ENTRY | change]}))
    with pytest.raises(UserError, match=said):
        tables.read_explanations(path)


def test_the_committed_explanations_are_of_cells_that_there_are() -> None:
    assert tables.read_explanations(tables.EXPLANATIONS) is not None
