"""What `fedtune reproduce` prints: tables within 80 columns, with the same numbers as the page and the files."""

from __future__ import annotations

import html
from pathlib import Path

import pytest

from analysis.reproduce.claims import decide
from analysis.reproduce.made import Made
from analysis.reproduce.page import page
from analysis.reproduce.tables import numbers
from fedtune.api.reproduce import Reproduced
from fedtune.commands._reproduce_output import result
from tests.analysis.reproduce import folders


def printed(made: Made, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("COLUMNS", raising=False)
    name = made.reproduction.name
    result(Reproduced(Path("x"), f"fedtune reproduce {name} --small", made, decide(made), finished=False), False)
    return capsys.readouterr().out


def test_brackets_of_the_best_round_agree_in_table_page_and_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = folders.brackets(tmp_path)
    drawn = html.unescape(page(made, decide(made), "again", finished=True).html()).replace("\u00a0", " ")
    said = printed(made, capsys, monkeypatch)
    rows = [row for row in numbers(made).rows if row["n"]]
    assert len(rows) == 2 * 2 * 3, "two metrics of two rows under three conditions"
    for row in rows:
        assert row["unit"] == "fraction" and 0 < float(row["mean"]) < 1
        shown = f"{100 * float(row['mean']):.2f} ± {100 * float(row['std']):.2f}"
        shown = f"({shown})" if row["metric"] == "local_accuracy" else shown
        assert shown in said and shown in drawn, row
    paper = [row for row in rows if row["metric"] == "local_accuracy" and row["row"] == "FedAvg"]
    assert all(f"({100 * float(row['paper_mean']):.2f}" in said for row in paper)
    assert "Local accuracy" in said and "in brackets" in said
    assert max(map(len, said.splitlines())) <= 80


def test_without_brackets_a_cell_has_two_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = printed(folders.table(tmp_path), capsys, monkeypatch)
    assert "First line: here, second line: the paper." in said and "in brackets" not in said
