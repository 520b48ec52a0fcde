"""fedtune compare: what is compared with what, the tests, the outputs."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from plotly.offline import get_plotlyjs
from scipy import stats
from typer.testing import CliRunner

from analysis.compare import compare
from analysis.runs import Run
from analysis.tables import Column, Table
from fedtune.cli import app
from search_spaces import run_folder
from search_spaces.errors import UserError
from tests.analysis import synthetic


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two final runs on the same four seeds."""
    root = tmp_path_factory.mktemp("pair")
    return [
        synthetic.write(root / name, keys=(), kind="run", seeds=(5, 6, 7, 8), failures=False, method=name, shift=shift)
        for name, shift in (("fedavg", 0.0), ("dfrd", 0.06))
    ]


def test_a_search_takes_part_with_its_best_trial_by_validation(root: Path, loaded: dict[str, Run]) -> None:
    found = compare([root / "other", root / "tpe"])
    entry = next(e for e in found.entries if e.run == "tpe" and e.metric == "global_accuracy")
    assert entry.trial == loaded["tpe"].best and entry.values == loaded["tpe"].last(entry.trial or 0, "global_accuracy")
    assert any("chosen by Global accuracy (validation)" in n for n in found.notes())


def test_final_runs_are_tested_per_seed(pair: list[Path]) -> None:
    found = compare(pair, metrics=["global_accuracy"])
    a, b = (e.values for e in found.entries)
    assert sorted(a) == [5, 6, 7, 8] and found.entries[0].test is None
    test = found.entries[1].test
    assert test is not None and test.n == 4 and test.difference == pytest.approx(np.mean([b[k] - a[k] for k in a]))
    assert test.t_p == pytest.approx(stats.ttest_rel([b[k] for k in a], [a[k] for k in a]).pvalue)
    assert any("With 4 pairs the Wilcoxon test cannot fall below p = 0.125" in n for n in found.notes())


def test_the_best_round_is_never_below_the_last_and_is_called_optimistic(pair: list[Path]) -> None:
    last, best = compare(pair), compare(pair, readout="best")
    for x, y in zip(last.entries, best.entries, strict=True):
        assert all(y.values[s] >= x.values[s] for s in x.values)
    assert any("optimistic" in n for n in best.notes()) and not any("optimistic" in n for n in last.notes())


def test_a_metric_to_be_minimised_has_its_lowest_round_as_best(pair: list[Path]) -> None:
    last, best = (compare(pair, metrics=["global_loss"], readout=how).entries[0].values for how in ("last", "best"))
    assert all(best[s] <= last[s] for s in last)


def test_runs_without_common_seeds_or_of_other_data_say_so(root: Path, tmp_path: Path) -> None:
    svhn = synthetic.write(
        tmp_path / "svhn", keys=(), kind="run", seeds=(50, 51), rounds=4, failures=False, fixed={"dataset": "svhn"}
    )
    notes = " ".join(compare([root / "final", svhn]).notes())
    assert (
        "no paired test is possible" in notes and "digits, svhn" in notes and "different lengths (4, 9 rounds)" in notes
    )


def made_on(folder: Path, processor: str, torch: str, **more: object) -> None:
    """Writes on what a run was computed."""
    machine = {"host": folder.name, "processor": processor, "instructions": "AVX2"}
    (folder / run_folder.PROVENANCE).write_text(json.dumps({"machine": machine, "versions": {"torch": torch}} | more))


def test_runs_of_another_kind_of_processor_or_of_other_versions_say_so(pair: list[Path], tmp_path: Path) -> None:
    ours, theirs = (Path(shutil.copytree(run, tmp_path / run.name)) for run in pair)

    def said() -> list[str]:
        return [note for note in compare([ours, theirs]).notes() if "other last digits" in note]

    made_on(ours, "AMD EPYC", "2.14.1")
    made_on(theirs, "AMD EPYC", "2.14.1")
    assert said() == []
    made_on(theirs, "Intel Xeon", "2.14.1")
    assert said() == [
        "fedavg was computed with AMD EPYC (AVX2) and dfrd with Intel Xeon (AVX2), where the same seed may give other "
        "last digits: "
        "a small Δ may come from that."
    ]
    made_on(theirs, "AMD EPYC", "2.15.0")
    assert "fedavg was computed with torch 2.14.1 and dfrd with torch 2.15.0, where" in said()[0] and len(said()) == 1
    made_on(
        theirs,
        "AMD EPYC",
        "2.14.1",
        continued=[{"machine": {"processor": "Intel Xeon", "instructions": "AVX512"}, "versions": {"torch": "2.14.1"}}],
    )
    assert "dfrd with Intel Xeon (AVX512), where" in said()[0]
    shutil.copy(theirs / run_folder.PROVENANCE, ours / run_folder.PROVENANCE)
    assert said()[0] == (
        "fedavg was computed in parts, with AMD EPYC (AVX2), Intel Xeon (AVX512): the same seed may give other last "
        "digits there."
    )
    (theirs / run_folder.PROVENANCE).unlink()
    made_on(ours, "AMD EPYC", "2.14.1")
    assert said() == [], "what was not recorded is not compared"
    assert "other last digits" not in CliRunner().invoke(app, ["compare", str(ours), str(theirs)]).output
    made_on(theirs, "Intel Xeon", "2.14.1")
    assert "other last digits" in " ".join(CliRunner().invoke(app, ["compare", str(ours), str(theirs)]).output.split())


def test_bad_requests_are_told_all_at_once(root: Path) -> None:
    with pytest.raises(UserError) as caught:
        compare([root / "tpe"], metrics=["global_acuracy"], readout="middle")
    assert len(caught.value.problems) == 2 and "Did you mean 'global_accuracy'" in str(caught.value)


def test_a_run_without_a_result_is_told(root: Path, tmp_path: Path) -> None:
    empty = synthetic.write(tmp_path / "empty", trials=1)  # its only trial is still running
    with pytest.raises(UserError, match="'empty' has no completed trial"):
        compare([root / "tpe", empty])


def test_csv_json_and_latex_hold_the_same_numbers(pair: list[Path]) -> None:
    run = CliRunner(env={"COLUMNS": "200"})
    args = ["compare", *map(str, pair), "--metric", "global_accuracy"]
    rows = list(csv.DictReader(io.StringIO(run.invoke(app, [*args, "--csv"]).stdout)))
    data = json.loads(run.invoke(app, [*args, "--json"]).stdout)
    expected = compare(pair, metrics=["global_accuracy"]).entries
    for row, result, entry in zip(rows, data["results"], expected, strict=True):
        assert float(row["mean"]) == result["mean"] == pytest.approx(100 * entry.summary.mean)
        assert entry.summary.shown(100, sign=r" $\pm$ ") in run.invoke(app, [*args, "--latex"]).stdout
    assert data["results"][0]["t_p"] is None and data["seeds"][0]["values"]["5"] == expected[0].values[5]
    shown = run.invoke(app, args)
    assert shown.exit_code == 0 and expected[1].summary.shown(100) in shown.stdout


def test_only_one_output_format(pair: list[Path]) -> None:
    found = CliRunner().invoke(app, ["compare", *map(str, pair), "--csv", "--json"])
    assert isinstance(found.exception, UserError)


def test_the_figure_is_one_offline_page(pair: list[Path], tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["compare", *map(str, pair), "--csv", "--figure", str(tmp_path / "curves.html")])
    text = (tmp_path / "curves.html").read_text()
    assert found.exit_code == 0 and "Figure" not in found.stdout
    assert (
        text.count(get_plotlyjs()) == 1
        and 'data-figure="methods"' in text
        and "https:" not in text.replace(get_plotlyjs(), "")
    )


def test_a_csv_cell_cannot_become_a_formula_and_latex_is_escaped() -> None:
    table = Table([Column("a", "a_b", str, right=False)], [{"a": "=1+1"}, {"a": "50 % & λ_1"}])
    assert "'=1+1" in table.csv() and r"50 \% \& $\lambda$\_1" in table.latex() and r"a\_b" in table.latex()
