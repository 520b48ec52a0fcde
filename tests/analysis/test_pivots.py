"""`fedtune compare --by`: tables of several runs as files and on one page."""

from __future__ import annotations

import csv
import io
import json
from html import unescape
from pathlib import Path

import pytest
from typer.testing import CliRunner

from analysis.pivots import pivots
from fedtune.cli import app
from search_spaces.errors import UserError
from tests.analysis import varied


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pivots")
    varied.fairness(folder / "a")
    varied.fairness(folder / "b", method="fedavg", shift=-0.1)
    return folder


def call(*words: object) -> tuple[str, str]:
    found = CliRunner(env={"COLUMNS": "140"}).invoke(app, ["compare", *map(str, words)])
    assert found.exit_code == 0, found.output
    return found.stdout, found.stderr


def test_every_file_that_was_asked_for_is_written(root: Path, tmp_path: Path) -> None:
    files = {kind: tmp_path / f"t.{kind}" for kind in ("tex", "csv", "md", "html")}
    options = ["--latex", files["tex"], "--csv", files["csv"], "--markdown", files["md"], "--figure", files["html"]]
    said, told = call(root / "a", root / "b", "--metric", "amp", "--metric", "wlp", "--by", "omega", *options)
    assert all(str(path) in said + told for path in files.values())
    found = pivots([root / "a", root / "b"], metrics=["amp", "wlp"], by=["omega"])
    assert files["tex"].read_text() == found.latex() and files["md"].read_text() == found.markdown()
    assert files["csv"].read_text() == found.csv()
    assert len(list(csv.DictReader(io.StringIO(found.csv())))) == 2 * 2 * 3 == len(found.frame())
    page = files["html"].read_text()
    assert 'data-figure="factor"' in page and 'data-figure="boxes"' in page and page.count('class="pivot"') == 2
    assert f"{found.tables[0].text('dfrd', (1.0,))} *" in said, "the best is marked without colours too"


def test_a_dash_prints_and_nothing_else_does(root: Path, tmp_path: Path) -> None:
    said, told = call(root / "a", "--variant", "merge_op", "--latex", "-", "--figure", tmp_path / "f.html")
    assert said == pivots(root / "a", variants=["merge_op"]).latex() and "Figure: " in told
    said, _ = call(root / "a", "--json")
    assert [row["omega"] for row in json.loads(said)["results"]] == [10.0, 1.0, 0.1]


def test_a_run_under_conditions_has_a_column_each_without_asking(root: Path) -> None:
    said, _ = call(root / "a", root / "b")
    assert "Global accuracy, test [%], last round" in said and "ω = 10" in said and "Settings that differ" not in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--metric", "ampp"], "Unknown metric 'ampp' .*Did you mean 'amp'"),
        (["--brackets", "ampp"], r"Unknown metric 'ampp' \(--brackets\)"),
        (["--readout", "first"], "Unknown readout 'first'"),
        (["--where", "omega"], "--where must be name=value, got 'omega'"),
        (["--metric", "psnr"], "psnr was not measured in a. Choose another --metric."),
        (["--latex", "-", "--csv", "-"], "Only one of --csv, --latex, --markdown and --json can print"),
        (["--latex", "/proc/no/t.tex"], "cannot be written"),
        (["--figure", "f.png"], r"output must be a file ending in \.html, got 'f\.png' \(--figure\)"),
        (["--csv", "t.foo"], r"output must be a file ending in \.csv, got 't\.foo' \(--csv\)"),
    ],
)
def test_what_cannot_be_done(root: Path, words: list[str], said: str) -> None:
    found = CliRunner().invoke(app, ["compare", str(root / "a"), *words])
    assert isinstance(found.exception, UserError)
    with pytest.raises(UserError, match=said):
        raise found.exception


def test_markdown_needs_by(tmp_path: Path) -> None:
    from tests.analysis import synthetic

    plain = synthetic.write(tmp_path / "plain", failures=False)
    found = CliRunner().invoke(app, ["compare", str(plain), "--markdown", "-"])
    assert isinstance(found.exception, UserError) and "Give --by" in str(found.exception)
    assert "omega = 0.1" in call(plain, "--by", "omega", "--markdown", "-")[0]


@pytest.fixture(scope="module")
def unequal(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two runs under the same ω, of another problem each."""
    folder = tmp_path_factory.mktemp("unequal")
    varied.fairness(folder / "ten", method="fedavg")
    changed = {"rho": 0, "clients": 100, "dataset": "svhn"}
    return [folder / "ten", varied.fairness(folder / "hundred", rounds=5, fixed=changed)]


def test_every_output_says_in_which_settings_the_runs_differ(unequal: list[Path], tmp_path: Path) -> None:
    page, table = tmp_path / "f.html", tmp_path / "t.html"
    words = [*unequal, "--by", "omega", "--metric", "amp"]
    terminal = " ".join(call(*words, "--figure", page)[0].split())
    asked = ["figure", "pivot", *map(str, unequal), "--by", "omega", "-o", str(table)]
    assert CliRunner().invoke(app, asked).exit_code == 0
    told = json.loads(call(*words, "--json")[0])
    outputs = [terminal, unescape(page.read_text()), unescape(table.read_text()), call(*words, "--latex", "-")[0]]
    outputs += [call(*words, "--markdown", "-")[0].replace("\\", ""), " ".join(told["notes"])]
    for said in outputs:
        differing = said[said.index("Settings that differ: ") :].split(".")[0]
        assert "clients = 10 (ten), 100 (hundred);" in differing and "rho = 10 (ten), 0 (hundred);" in differing
        assert "different lengths (3, 5 rounds)" in said and "different data sets (digits, svhn)" in said
        assert "omega =" not in differing and "ω =" not in differing and "merge_op =" not in differing
    assert told["differences"]["clients"] == {"ten": 10, "hundred": 100}
    rows = list(csv.DictReader(io.StringIO(call(*words, "--csv", "-")[0])))
    assert {(row["run"], row["config.clients"]) for row in rows} == {("ten", "10"), ("hundred", "100")}
    for said in (call(*words[:2], "--by", "dataset", "--where", "omega=1")[0], call(*words[:1], "--by", "omega")[0]):
        assert "data sets" not in said and "dataset =" not in said


def test_equal_runs_have_no_such_note(root: Path) -> None:
    said, _ = call(root / "a", root / "b", "--by", "omega")
    assert "Settings that differ" not in said and "different" not in said


def test_a_note_names_the_marks_that_are_shown(root: Path) -> None:
    words = [root / "a", root / "b", "--by", "omega"]
    said = " ".join(call(*words)[0].split())
    assert "*: the best mean of the column. =: not told from it" in said and "Bold" not in said
    assert "Bold: the best mean" in call(*words, "--latex", "-")[0]
    assert json.loads(call(*words, "--json")[0])["notes"][-1].startswith("best: the best mean of the column. tied: ")
