"""scripts/published.py: the page of all numbers for Fashion-MNIST is what the data make, and how runs come into it."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import published
import pytest

from analysis.published import papers
from analysis.reproduce import tables
from tests.analysis.reproduce import folders

SHEET = ("dfrd-table1", "fmnist32")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A row of DFRD's Table 1: three cells of three seeds, with two numbers each."""
    return folders.brackets(tmp_path_factory.mktemp("made"), rows=("FedAvg",), record=folders.FASHION).path


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(published, "CSV", tmp_path / "published.csv")
    monkeypatch.setattr(published, "PAGE", tmp_path / "published.md")
    yield tmp_path


def lines() -> list[dict[str, str]]:
    with published.CSV.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_every_number_for_fashion_mnist_is_there_once() -> None:
    theirs = Counter(
        (line.table, f"{line.mean:.2f}", f"{line.std:.2f}")
        for name in papers.names()
        for line in papers.published(name)
        if line.dataset.startswith("fmnist") and not line.region
    )
    here = Counter(
        (line["published"], line["paper_mean"], line["paper_std"])
        for line in lines()
        if line["dataset"].startswith("fmnist")
    )
    assert here == theirs and here.total() == 226


def test_the_numbers_of_a_folder_come_into_both_files(
    folder: Path, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert published.main(["add", str(folder)]) == 0 and published.main(["page"]) == 0
    assert "6 numbers, 0 of them in place of earlier ones." in capsys.readouterr().out
    held = [line for line in lines() if line["ours"]]
    assert len(held) == 6 and {line["row"] for line in held} == {"FedAvg"}
    first = next(line for line in held if (line["row"], line["metric"]) == ("FedAvg", "global_accuracy"))
    values = [float(pair.partition("=")[2]) for pair in first["ours"].split()]
    assert [pair.partition("=")[0] for pair in first["ours"].split()] == ["1000", "1001", "1002"]
    assert (first["rounds"], first["model"], first["clients"], first["revision"]) == (
        "200",
        "lenet_code",
        "10",
        "1c91e4b",
    )
    page = published.PAGE.read_text(encoding="utf-8")
    mean = sum(values) / 3
    assert "</span><br>not run |" in page and f" {mean:.2f}\u00a0±" in page
    assert "**6 of 226 numbers for Fashion-MNIST have been run:" in page
    assert f"{mean - 89.71:+.2f}".replace("-", "−") in page


def test_each_verdict_stands_on_the_page_and_its_explanation(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = dict(zip(published.SETTING, ("200", "200", "lenet_code", "10"), strict=True)) | {"revision": "abc"}
    at = {row: (SHEET, row, "omega=1", "global_accuracy") for row in ("FedAvg", "+ DENSE", "+ DFRD", "DFRD")}
    at["wide"] = (SHEET, "FedFTG", "omega=0.01", "global_accuracy")  # 26.96 ± 8.33
    ours = {"FedAvg": "1=89.6 2=89.8", "+ DENSE": "1=90.2", "+ DFRD": "1=80 2=80.1", "DFRD": "1=60", "wide": "1=32"}
    entry = tables.Explanation(*SHEET, "Tried without momentum: 91.2.", rows=("+ DFRD",))
    monkeypatch.setattr(tables, "read_explanations", lambda path: (entry,))
    page = published.page({at[row]: {**setting, "ours": text} for row, text in ours.items()})
    assert "5 of 226 numbers for Fashion-MNIST have been run: 2 agree, 2 disagree, 1 cannot be told." in page
    assert "2 of the disagreements are large; 1 of these are not explained." in page
    rows = {
        line.split(" | ")[0].removeprefix("| "): line.split(" | ")[1]
        for line in reversed(page.splitlines())
        if "<br>" in line
    }
    plain = {row: re.sub("</?span[^>]*>", "", cell).replace("\u00a0", " ") for row, cell in rows.items()}
    assert plain["FedAvg"].startswith("89.70 ± 0.14, n = 2<br>89.71 ± 0.10<br>−0.01 = 0.1, 0.1 std<br>")
    assert 'verdict agrees">agrees<' in rows["FedAvg"] and 'verdict agrees">agrees<' in rows["+ DENSE"]
    assert (
        plain["DFRD"].startswith("60.00, n = 1<br>65.38 ± 0.72<br>−5.38 = 7.5 std<br>") and "(large)" in plain["DFRD"]
    )
    assert page.count('<br><span class="verdict untold">cannot be told<') == 1
    told = [line for line in page.splitlines() if line.startswith(("| + DFRD, ω = 1", "| DFRD, ω = 1"))]
    assert told[0].endswith("| not explained |") and told[1].endswith("| Tried without momentum: 91.2. |")
    assert "Kendall's τ: ω = 1: 0.33 (n = 4 of 7)" in page
