"""Cells of several runs, and the pivot table made of them."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_rel

from analysis.labels import decimals
from analysis.runs import load_runs
from analysis.tables.cells import cells
from analysis.tables.pivot import pivot, to_csv, to_json
from search_spaces.errors import UserError
from tests.analysis import synthetic, varied


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """fairness: two variants under three ω; weaker: another method under the same; one: a final run at ω = 1."""
    folder = tmp_path_factory.mktemp("pivot")
    varied.fairness(folder / "fairness")
    varied.fairness(folder / "weaker", method="fedavg", shift=-0.3)
    varied.crossed(folder / "crossed")
    synthetic.write(
        folder / "one",
        keys=(),
        seeds=(0, 1, 2),
        kind="run",
        rounds=3,
        failures=False,
        fixed={"omega": 1.0},
        method="moon",
    )
    return folder


def values(root: Path, name: str, trial: int, metric: str = "global_accuracy") -> dict[int, float]:
    return varied.last(root / name, trial, metric)


def test_a_row_for_every_variant(root: Path) -> None:
    found = cells(load_runs(root / "fairness"), variants=["merge_op"])
    assert found.by == ("omega",) and found.conditions == [(10.0,), (1.0,), (0.1,)]
    assert found.rows == ["dfrd, merge_op = mul", "dfrd, merge_op = add"]
    cell = found.of("dfrd, merge_op = add", (1.0,))
    assert cell is not None and cell.values("global_accuracy") == values(root, "fairness", 4)


def test_a_target_that_was_not_reached_keeps_its_row(tmp_path: Path) -> None:
    varied.fairness(tmp_path / "reaches")
    varied.fairness(tmp_path / "waits", method="fedavg")
    for path in tmp_path.glob("*/trials/*/rounds.jsonl"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        reached = 2 if "reaches" in path.parts else None
        path.write_text("".join(json.dumps({**row, "rounds_to_target": reached}) + "\n" for row in rows))
    table = pivot(cells(load_runs([tmp_path / "reaches", tmp_path / "waits"])), "rounds_to_target")
    assert list(table.rows) == ["dfrd", "fedavg"] and len(table.conditions) == 3
    for condition in table.conditions:
        assert table.text("dfrd", condition) == "2.00 ± 0.00" and table.text("fedavg", condition) == "–"
    assert table.printed().rows == [("dfrd",), ("fedavg",)]
    assert any("did not reach the target" in note for note in table.notes())
    assert not any("target" in note for note in pivot(cells(load_runs(tmp_path / "reaches")), "wlp").notes())


@pytest.mark.parametrize(
    ("metric", "expected"),
    [("global_accuracy", 2), ("fm", 4), ("rounds_to_target", 2), ("psnr", 2), ("bytes_up", 0), ("a_users_own", 4)],
)
def test_numbers_have_the_digits_that_their_unit_needs(metric: str, expected: int) -> None:
    assert decimals(metric) == expected


def test_a_search_takes_part_with_the_best_of_each_condition(root: Path) -> None:
    """And a run of its own for one condition stands in that column."""
    found = cells(load_runs([root / "fairness", root / "one"]))
    assert found.rows == ["dfrd", "moon"] and found.of("moon", (10.0,)) is None
    for place, omega in enumerate(varied.OMEGAS):
        cell = found.of("dfrd", (omega,))
        by = {n: np.mean(list(values(root, "fairness", n, "val_global_accuracy").values())) for n in (place, place + 3)}
        assert cell is not None and cell.part.best == max(by, key=lambda n: by[n])
    one = found.of("moon", (1.0,))
    assert one is not None and sorted(one.values("global_accuracy")) == [0, 1, 2]


def test_runs_that_share_a_row_and_a_condition_are_named(root: Path, tmp_path: Path) -> None:
    again = varied.fairness(tmp_path / "again", shift=-0.1)
    found = cells(load_runs([root / "fairness", again]))
    assert found.rows == ["dfrd (fairness)", "dfrd (again)"]


def test_nothing_is_averaged_over_a_condition(root: Path) -> None:
    with pytest.raises(
        UserError, match=r"crossed varies dataset too.*Add --by dataset, or choose.*--where dataset=digits"
    ):
        cells(load_runs(root / "crossed"), ["omega"])
    chosen = cells(load_runs(root / "crossed"), ["omega"], where={"dataset": "svhn"})
    cell = chosen.of("dfrd", (0.1,))
    assert cell is not None and cell.values("amp") == values(root, "crossed", 5, "amp")
    assert cells(load_runs(root / "crossed"), where={"dataset": "svhn"}).by == ("omega",)


def test_what_cannot_be_asked_for(root: Path) -> None:
    with pytest.raises(UserError, match=r"Unknown parameter of fairness 'omga'.*Did you mean 'omega'"):
        cells(load_runs(root / "fairness"), ["omga"])
    for given, option in (
        ({"by": ["nix"]}, "--by"),
        ({"variants": ["nix"]}, "--variant"),
        ({"where": {"nix": "1"}}, "--where"),
    ):
        with pytest.raises(UserError, match=rf"^Unknown parameter of fairness 'nix' \({option}\)\. Known: "):
            cells(load_runs(root / "fairness"), **given)
    with pytest.raises(UserError, match="No run varies a condition of the experiment"):
        cells(load_runs(root / "one"))
    with pytest.raises(UserError, match="No trial of these runs has completed under"):
        cells(load_runs(root / "fairness"), where={"omega": "7"})
    with pytest.raises(UserError, match=r"nothing under omega=7: all of it is under omega=1\. Leave --where omega out"):
        cells(load_runs(root / "one"), where={"omega": "7"})


def test_means_and_spreads_are_those_of_the_files(root: Path) -> None:
    table = pivot(cells(load_runs(root / "fairness"), variants=["merge_op"]), "global_accuracy", "local_accuracy")
    frame = table.frame().set_index(["row", "omega"])
    for trial, (merge, omega) in enumerate((m, w) for m in varied.MERGES for w in varied.OMEGAS):
        row = frame.loc[(f"dfrd, merge_op = {merge}", omega)]
        mean, std = varied.mean_std(values(root, "fairness", trial))
        inside = varied.mean_std(values(root, "fairness", trial, "local_accuracy"))
        assert row["mean"] == pytest.approx(mean) and row["std"] == pytest.approx(std) and row["n"] == 3
        assert row["bracket_mean"] == pytest.approx(inside[0]) and row["trial"] == trial
        assert row["unit"] == row["bracket_unit"] == "fraction"
        text = f"{100 * mean:.2f} ± {100 * std:.2f} ({100 * inside[0]:.2f} ± {100 * inside[1]:.2f})"
        assert table.text(f"dfrd, merge_op = {merge}", (omega,)) == text


def test_in_the_best_round_the_bracket_is_of_its_own_best_round_too(tmp_path: Path) -> None:
    """By the files alone; fm is better where it is lower."""
    folder = varied.fairness(tmp_path / "long", rounds=20)
    found = cells(load_runs(folder), variants=["merge_op"])
    later = 0
    for bracket, best in (("local_accuracy", max), ("fm", min)):
        for readout in ("best", "last"):
            table = pivot(found, "global_accuracy", bracket, readout)
            for (row, (omega,)), entry in table.entries.items():
                trial = 3 * ("add" in row) + varied.OMEGAS.index(omega)
                by_seed = varied.curves(folder, trial, bracket)
                last = float(np.mean([values[-1] for values in by_seed.values()]))
                expected = float(np.mean([best(values) for values in by_seed.values()])) if readout == "best" else last
                assert entry.bracket is not None and entry.bracket.mean == pytest.approx(expected)
                later += expected != last
    assert later > 6, "the test would show nothing"


def test_the_best_is_bold_and_what_is_not_told_from_it_underlined(root: Path) -> None:
    """p by SciPy's paired test of the raw values, times the rank that Holm gives it."""
    found = cells(load_runs([root / "fairness", root / "weaker"]), variants=["merge_op"])
    table = pivot(found, "global_accuracy")
    for column, omega in enumerate(varied.OMEGAS):
        raw = {
            row: list(cell.values("global_accuracy").values())
            for row in found.rows
            if (cell := found.of(row, (omega,)))
        }
        best = max(raw, key=lambda row: np.mean(raw[row]))
        ps = {row: float(ttest_rel(raw[row], raw[best]).pvalue) for row in raw if row != best}
        running, corrected = 0.0, {}
        for rank, row in enumerate(sorted(ps, key=lambda row: ps[row])):
            running = max(running, min(1.0, (3 - rank) * ps[row]))
            corrected[row] = running
        for row in raw:
            entry = table.entries[row, (omega,)]
            assert entry.best == (row == best), column
            assert entry.tied == (row != best and corrected[row] >= 0.05)
            assert row == best or entry.p == pytest.approx(corrected[row])
    assert {e.tied for e in table.entries.values() if not e.best} == {True, False}, "both are there"


def test_equal_means_are_both_best(root: Path, tmp_path: Path) -> None:
    twin = varied.fairness(tmp_path / "twin")
    table = pivot(cells(load_runs([root / "fairness", twin]), variants=["merge_op"]), "amp")
    entries = [table.entries[row, (10.0,)] for row in table.rows]
    assert [e.best for e in entries] == [True, False, True, False] and not entries[2].tied


def test_one_seed_tells_nothing_apart(tmp_path: Path) -> None:
    found = cells(load_runs(varied.fairness(tmp_path / "single", seeds=(0,))), variants=["merge_op"])
    table = pivot(found, "global_accuracy")
    assert all(e.best != e.tied for e in table.entries.values())
    assert any("fewer than two seeds" in note for note in table.notes())
    assert "±" not in table.text(table.rows[0], (10.0,))


def test_less_is_better_where_the_metric_says_so(root: Path) -> None:
    table = pivot(cells(load_runs(root / "fairness"), variants=["merge_op"]), "fm")
    column = {row: table.entries[row, (0.1,)] for row in table.rows}
    assert [e.best for e in column.values()] == [
        e.summary.mean == min(x.summary.mean for x in column.values()) for e in column.values()
    ]


def test_markdown_html_and_csv_have_the_same_cells(root: Path) -> None:
    table = pivot(cells(load_runs([root / "fairness", root / "weaker"])), "global_accuracy")
    mean, std = varied.mean_std(values(root, "weaker", 0 if table.entries["fedavg", (10.0,)].trial == 0 else 3))
    shown = f"{100 * mean:.2f} ± {100 * std:.2f}"
    assert shown in table.printed().markdown() and shown.replace(" ", "\u00a0") in table.printed().html()
    assert "| method | ω = 10 | ω = 1 | ω = 0.1 |" in table.printed().markdown()
    assert table.printed().html().count("<b>") == 3 and "<u>" not in table.printed().markdown().split("\n")[0]
    rows = list(csv.DictReader(io.StringIO(to_csv([table]))))
    assert len(rows) == 6 and {row["row"] for row in rows} == {"dfrd", "fedavg"}
    found = next(r for r in rows if r["row"] == "fedavg" and r["omega"] == "10.0")
    assert float(found["mean"]) == pytest.approx(mean) and found["unit"] == "fraction"
    first = to_json([table])[0]
    assert first["p_holm"] is None and first["unit"] == "fraction" and first["mean"] < 1


def test_names_are_text_everywhere(tmp_path: Path) -> None:
    """HTML, Markdown and LaTeX in the name of a method."""
    nasty = varied.fairness(tmp_path / "x", method="<b>|$&_`")
    table = pivot(cells(load_runs(nasty)), "global_accuracy")
    assert "<b>|" not in table.printed().html() and "&lt;b&gt;|$&amp;_`" in table.printed().html()
    assert r"&lt;b&gt;\|$&amp;\_\`" in table.printed().markdown()
    assert r"\textless{}b\textgreater{}|\$\&\_`" in table.printed().latex()
