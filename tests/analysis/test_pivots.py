"""`fedtune compare --by`: tables of several runs as files and on one page."""

from __future__ import annotations

import csv
import io
import json
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
