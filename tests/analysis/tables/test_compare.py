"""fedtune compare: what is compared with what, the tests, the outputs."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from plotly.offline import get_plotlyjs
from scipy import stats
from typer.testing import CliRunner

from analysis.figures import rounds
from analysis.report.comparison import write_figure
from analysis.runs import Run
from analysis.tables.compare import compare
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


def power(effect: float, n: int) -> float:
    """The power of a two-sided t test of n pairs at 0.05."""
    beyond, shift = stats.t.ppf(0.975, n - 1), abs(effect) * np.sqrt(n)
    return float(1 - stats.nct.cdf(beyond, n - 1, shift) + stats.nct.cdf(-beyond, n - 1, shift))


def test_paired_tests_have_a_table_with_corrected_p_and_the_seeds_needed(pair: list[Path], tmp_path: Path) -> None:
    third = synthetic.write(
        tmp_path / "fedprox", keys=(), kind="run", seeds=(5, 6, 7, 8), failures=False, method="fedprox", shift=0.004
    )
    found = compare([*pair, third], metrics=["global_accuracy", "train_loss"])
    first, *others = (list(e.values.values()) for e in found.entries if e.metric == "global_accuracy")
    apart = [100 * np.subtract(other, first) for other in others]
    p = sorted((stats.ttest_1samp(d, 0).pvalue, i) for i, d in enumerate(apart))
    corrected = dict(zip((i for _, i in p), (2 * p[0][0], max(2 * p[0][0], p[1][0])), strict=True))
    table = found.tests()
    assert table is not None and table.title == "Differences to fedavg" and len(table.rows) == 4
    for i, (row, d) in enumerate(zip(table.rows, apart, strict=False)):
        effect = np.mean(d) / np.std(d, ddof=1)
        assert row["shift"] == f"{np.mean(d):+.2f} ± {np.std(d, ddof=1):.2f}"
        assert row["t_p_holm"] == pytest.approx(min(1, corrected[i]))
        assert power(effect, row["seeds_needed"]) >= 0.8
        assert row["seeds_needed"] == 2 or power(effect, row["seeds_needed"] - 1) < 0.8
    assert any("Holm" in note for note in table.notes) and any("four of five" in note for note in found.notes())
    results = {(r["run"], r["metric"]): r for r in found.to_json()["results"]}
    for row in table.rows:
        keys = ("difference", "difference_std", "t_p", "t_p_holm", "seeds_needed")
        assert [results[row["run"], row["metric"]][key] for key in keys] == [row[key] for key in keys]
    assert len(str(table.rows[2]["shift"]).split(".")[1].split()[0]) == 4, "a loss is small: four digits"


def test_one_run_alone_has_no_tests(pair: list[Path]) -> None:
    found = compare(pair[:1])
    assert found.tests() is None and not any("Δ" in note or "Wilcoxon" in note for note in found.notes())
    assert "Differences to" not in CliRunner().invoke(app, ["compare", str(pair[0])]).output


def test_the_best_round_is_never_below_the_last_and_is_called_optimistic(pair: list[Path]) -> None:
    last, best = compare(pair), compare(pair, readout="best")
    for x, y in zip(last.entries, best.entries, strict=True):
        assert all(y.values[s] >= x.values[s] for s in x.values)
    assert any("optimistic" in n for n in best.notes()) and not any("optimistic" in n for n in last.notes())


def lines_of(run: Path) -> list[dict[str, Any]]:
    """Every recorded round of a run, as written."""
    return [json.loads(line) for file in sorted(run.rglob(run_folder.ROUNDS)) for line in file.open()]


def test_the_best_round_stands_beside_the_last_and_is_chosen_on_validation(pair: list[Path]) -> None:
    found = compare(pair, metrics=["global_accuracy", "train_loss"])
    for path, entry in zip(pair, found.entries, strict=False):
        chosen = {}
        for line in lines_of(path):  # rounds in order: an equal one later does not replace the first
            seed, value = line["seed"], line["val_global_accuracy"]
            if seed not in chosen or value > chosen[seed][0]:
                chosen[seed] = (value, line["global_accuracy"])
        on_test = [value for _, value in chosen.values()]
        assert entry.chooser == "val_global_accuracy" and entry.best.n == 4
        assert entry.best.mean == pytest.approx(np.mean(on_test)) and entry.best.std == pytest.approx(
            np.std(on_test, ddof=1)
        )
        peaks = compare(pair, metrics=["global_accuracy"], readout="best").entries
        assert entry.best.mean < next(e for e in peaks if e.run == entry.run).summary.mean
    assert found.entries[0].best.mean != found.entries[0].summary.mean
    lowest = [min(line["train_loss"] for line in lines_of(pair[0]) if line["seed"] == s) for s in (5, 6, 7, 8)]
    assert found.entries[2].chooser == "train_loss" and found.entries[2].best.mean == pytest.approx(np.mean(lowest))
    shown = [row["best"] for row in found.table().rows]
    assert shown[0] == found.entries[0].best.shown(100) and any(
        "chosen on the validation share" in n for n in found.notes()
    )
    assert any(n.startswith("Best round of Training loss: ") and "optimistic" in n for n in found.notes())


def test_where_one_run_has_no_validation_all_are_chosen_on_the_test_curve(pair: list[Path], tmp_path: Path) -> None:
    ours, theirs = (Path(shutil.copytree(run, tmp_path / run.name)) for run in pair)
    for file in theirs.rglob(run_folder.ROUNDS):
        lines = [json.loads(line) for line in file.open()]
        file.write_text("".join(json.dumps(_without(line, "val_global_accuracy")) + "\n" for line in lines))
    found = compare([ours, theirs], metrics=["global_accuracy"])
    peaks = compare([ours, theirs], metrics=["global_accuracy"], readout="best")
    assert [e.chooser for e in found.entries] == ["global_accuracy"] * 2
    assert [e.best.mean for e in found.entries] == [e.summary.mean for e in peaks.entries]
    assert any(n.startswith("Best round: ") and "optimistic" in n for n in found.notes())
    assert "best" not in [column.key for column in peaks.table().columns]


def test_no_best_round_is_known_where_the_test_set_was_measured_at_the_end(pair: list[Path], tmp_path: Path) -> None:
    """The other run's is chosen on validation data as before, and how often it was measured is no setting."""
    ours, theirs = (Path(shutil.copytree(run, tmp_path / run.name)) for run in pair)
    for path in theirs.rglob(run_folder.CONFIG):
        path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "eval_test": "end"}))
    before, found = (compare(runs, metrics=["global_accuracy"]) for runs in (pair, [ours, theirs]))
    assert [e.values for e in found.entries] == [e.values for e in before.entries]
    assert found.entries[0].best == before.entries[0].best and found.entries[1].best.n == 0
    assert [e.chooser for e in found.entries] == ["val_global_accuracy"] * 2
    assert [row["best"] for row in found.table().rows][1] == "–"
    assert found.differences() == before.differences()
    said = f"No best round is known of {theirs.name}, which measured the test set only where a trial may end"
    assert any(note.startswith(said) for note in found.notes()) and not any(said in note for note in before.notes())
    peaks = compare([ours, theirs], metrics=["global_accuracy"], readout="best")
    assert peaks.entries[0].values and not peaks.entries[1].values


def _without(line: dict[str, Any], key: str) -> dict[str, Any]:
    return {k: v for k, v in line.items() if k != key}


@pytest.fixture
def unequal(tmp_path: Path) -> list[Path]:
    """Three runs: the first two differ in two settings, the third has one of them and one of its own."""
    settings: dict[str, dict[str, Any]] = {
        "ours": {"gen_steps": 2, "merge_op": "mul", "lr": 0.05},
        "theirs": {"gen_steps": 1, "merge_op": "cat", "lr": 0.05},
        "base": {"lr": 0.05, "own": 3, "merge_op": "mul"},
    }
    return [
        synthetic.write(tmp_path / name, keys=(), kind="run", seeds=(5, 6), failures=False, fixed=fixed)
        for name, fixed in settings.items()
    ]


def test_settings_that_differ_are_shown_in_every_output(unequal: list[Path], tmp_path: Path) -> None:
    expected = {
        "gen_steps": {"ours": 2, "theirs": 1},
        "merge_op": {"ours": "mul", "theirs": "cat", "base": "mul"},
    }
    found = compare(unequal)
    assert found.differences() == expected
    settings = found.settings()
    assert settings is not None and settings.cells() == [
        ["ours", "2", "mul"],
        ["theirs", "1", "cat"],
        ["base", "–", "mul"],
    ]
    assert not any("same settings" in note for note in found.notes())
    run = CliRunner(env={"COLUMNS": "200"})
    args = ["compare", *map(str, unequal), "--metric", "global_accuracy"]
    shown = run.invoke(app, args).stdout.split("Settings that differ")[1]
    assert [line.split() for line in shown.splitlines() if line.split()[:1] == ["theirs"]] == [["theirs", "1", "cat"]]
    rows = list(csv.DictReader(io.StringIO(run.invoke(app, [*args, "--csv", "-"]).stdout)))
    assert [(row["config.gen_steps"], row["config.merge_op"]) for row in rows] == [
        ("2", "mul"),
        ("1", "cat"),
        ("", "mul"),
    ]
    data = json.loads(run.invoke(app, [*args, "--json"]).stdout)
    assert data["differences"] == expected and data["results"][1]["config.merge_op"] == "cat"
    latex = run.invoke(app, [*args, "--latex", "-"]).stdout
    assert latex.count(r"\begin{tabular}") == 3 and r"theirs & 1 & cat \\" in latex
    run.invoke(app, [*args, "--figure", str(tmp_path / "page.html")])
    whole = (tmp_path / "page.html").read_text().replace("\u00a0", " ")
    page = whole.split("Settings that differ")[-1]
    assert "gen_steps" in page and ">cat<" in page and found.entries[0].best.shown(100) in whole


def test_runs_of_the_same_settings_say_so(pair: list[Path]) -> None:
    found = compare(pair)
    assert found.settings() is None and found.differences() == {}
    assert any("The runs have the same settings" in note for note in found.notes())
    assert "config." not in found.records().csv()


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
    rows = list(csv.DictReader(io.StringIO(run.invoke(app, [*args, "--csv", "-"]).stdout)))
    data = json.loads(run.invoke(app, [*args, "--json"]).stdout)
    expected = compare(pair, metrics=["global_accuracy"]).entries
    for row, result, entry in zip(rows, data["results"], expected, strict=True):
        assert float(row["mean"]) == result["mean"] == pytest.approx(entry.summary.mean)
        assert float(row["best_mean"]) == result["best_mean"] == pytest.approx(entry.best.mean)
        assert row["best_by"] == result["best_by"] == "val_global_accuracy"
        assert entry.summary.shown(100).replace("±", r"$\pm$") in run.invoke(app, [*args, "--latex", "-"]).stdout
    assert data["results"][0]["t_p"] is None and data["seeds"][0]["values"]["5"] == expected[0].values[5]
    shown = run.invoke(app, args)
    assert shown.exit_code == 0 and expected[1].summary.shown(100) in shown.stdout


def test_the_figure_obeys_the_metrics_as_the_table_does(pair: list[Path], tmp_path: Path) -> None:
    found = compare(pair, metrics=["wlp", "train_loss"])
    table = rounds.data(found.runs, found.metrics).table
    assert list(dict.fromkeys(table["metric"])) == ["wlp", "train_loss"]
    written = write_figure(found, tmp_path / "f.html").read_text().replace(get_plotlyjs(), "")
    assert "WLP, test" in written and "Training loss" in written and "Global accuracy, test [" not in written
    lost = write_figure(compare(pair, metrics=["psnr"]), tmp_path / "none.html").read_text()
    assert "psnr was not measured in" in lost


def test_only_one_output_format(pair: list[Path]) -> None:
    found = CliRunner().invoke(app, ["compare", *map(str, pair), "--csv", "-", "--json"])
    assert isinstance(found.exception, UserError)


def test_the_figure_is_one_offline_page(pair: list[Path], tmp_path: Path) -> None:
    found = CliRunner().invoke(
        app, ["compare", *map(str, pair), "--csv", "-", "--figure", str(tmp_path / "curves.html")]
    )
    text = (tmp_path / "curves.html").read_text()
    assert found.exit_code == 0 and "Figure" not in found.stdout
    assert (
        text.count(get_plotlyjs()) == 1
        and 'data-figure="rounds"' in text
        and "https:" not in text.replace(get_plotlyjs(), "")
    )
