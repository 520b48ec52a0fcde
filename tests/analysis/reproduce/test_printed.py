"""What `fedtune reproduce` prints: tables within 80 columns, with the same numbers as the page and the files."""

from __future__ import annotations

import dataclasses
import html
from pathlib import Path

import pytest
from plotly.offline import get_plotlyjs

from analysis.reproduce.claims import decide
from analysis.reproduce.folder import Made, load_made
from analysis.reproduce.page import reproduction_page, table_files
from analysis.reproduce.tables import agreement, numbers
from fedtune.api.reproduce import Reproduced
from fedtune.commands._reproduce_output import result
from fedtune.record.run_directory import write_document
from search_spaces import run_folder
from search_spaces.shell import quote
from tests.analysis import strange
from tests.analysis.reproduce import folders


def printed(made: Made, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("COLUMNS", raising=False)
    name = made.reproduction.name
    result(Reproduced(Path("x"), f"fedtune reproduce {name} --small", made, decide(made), finished=False), False)
    return capsys.readouterr().out


def test_brackets_of_the_best_round_agree_in_table_page_and_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = folders.brackets(tmp_path, record=folders.FASHION)
    drawn = html.unescape(reproduction_page(made, decide(made), "again", finished=True).html()).replace("\u00a0", " ")
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
    assert agreement(made).startswith("Of 42 numbers ") and agreement(made) in " ".join(said.split())
    assert max(map(len, said.splitlines())) <= 80


def test_without_brackets_a_cell_has_two_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = printed(folders.table(tmp_path), capsys, monkeypatch)
    assert "First line: here, second line: the paper." in said and "in brackets" not in said


@pytest.mark.parametrize("kind", ["table", "heatmap"])
def test_hostile_texts_do_nothing_on_the_page(kind: str, tmp_path: Path) -> None:
    """Data, model and signs are from a record that somebody else may have written, and so is the folder's name."""
    made = getattr(folders, kind)(tmp_path / strange.FOLDER)
    here = dataclasses.replace(made.here, dataset=strange.FOLDER, model=strange.EVIL)
    paper = dataclasses.replace(made.paper, model=strange.EVIL)
    signs = dict.fromkeys(made.record.symbols, strange.EVIL)
    changed = dataclasses.replace(made.record, here=here, paper=paper, symbols=signs)
    write_document(made.path / run_folder.REPRODUCTION, changed.to_yaml())
    if kind == "table":
        strange.failed(next(iter(made.runs.values())).path, f"RuntimeError: {strange.EVIL}")
    hostile = load_made(made.path)
    again = f"fedtune resume {quote(str(made.path))}"
    drawn = reproduction_page(hostile, decide(hostile), again, finished=False).html().replace(get_plotlyjs(), "")
    assert [harm for harm in ("<img", "\x1b", "\x07", "\u202e") if harm in drawn] == []
    assert drawn.count("</script>") == 3
    said = html.unescape(drawn)
    assert said.count("</script><img src=x onerror=alert(1)>") >= 2
    assert again in said and ("Trials failed in" in said) is (kind == "table")
    for text in table_files(hostile).values():
        assert not any(harm in text for harm in ("\x1b", "\x07", "\u202e"))
