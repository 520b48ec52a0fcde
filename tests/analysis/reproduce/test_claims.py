"""What becomes of a sentence: the tests behind it are computed again by hand."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import t, ttest_1samp

from analysis.reproduce.claims import Decided, decide
from analysis.reproduce.declaration import Claim, Reproduction, Row, Side, declared
from analysis.reproduce.folder import Made, ReproductionRecord, Setting
from analysis.reproduce.joint_table import joined
from analysis.reproduce.page import reproduction_page, table_files, write_all
from analysis.reproduce.tables import every_number
from search_spaces import run_folder
from tests.analysis import synthetic
from tests.analysis.reproduce.folders import HERE, PAPER, heatmap, lines

SEEDS = (11, 12, 13, 14)


@dataclass(frozen=True)
class Cell:
    """As much of a run as a table asks for."""

    name: str
    measured: Mapping[str, Mapping[int, float]]
    kind: str = "run"
    best: int = 0
    chosen: tuple[int, ...] = (0,)
    searched: tuple[()] = ()
    varied: tuple[()] = ()
    metrics: tuple[str, ...] = ("val_amp",)

    @property
    def path(self) -> Path:
        return Path(self.name)

    @property
    def frozen(self) -> list[Any]:
        return [SimpleNamespace(state=SimpleNamespace(name="COMPLETE")) for _ in SEEDS]

    def over_seeds(self, metric: str, how: str) -> Mapping[int, float]:
        assert how == "last"
        return self.measured.get(metric, {})


def made(
    values: Mapping[tuple[str, Any], Mapping[str, list[float]]],
    *claims: Claim,
    here: Setting = HERE,
    paper: Setting = PAPER,
) -> Made:
    """A table of these values: by row and ω, by metric, one per seed."""
    rows = tuple(Row(name, "fedavg", "default", {}) for name in dict.fromkeys(row for row, _ in values))
    omegas = tuple(dict.fromkeys(omega for _, omega in values))
    metrics = tuple(dict.fromkeys(metric for cell in values.values() for metric in cell))
    one = dataclasses.replace(
        declared("fedkf-table5"), rows=rows, columns={"omega": omegas}, metrics=metrics, claims=claims
    )
    runs: Any = {
        (row, (omega,)): Cell(f"{row} {omega}", {m: dict(zip(SEEDS, v, strict=False)) for m, v in cell.items()})
        for (row, omega), cell in values.items()
    }
    return Made(Path("x"), ReproductionRecord(one.name, "small", here, PAPER, {"omega": "ω"}), one, runs)


def ahead(left: str, right: str, *metrics: str, **changes: Any) -> Claim:
    basis = Claim("left is ahead", "p. 1", metrics or ("amp",), Side((left,), {}), Side((right,), {}))
    return dataclasses.replace(basis, **changes)


def p_of(differences: list[float]) -> float:
    """A two-sided one-sample t test."""
    n = len(differences)
    mean = sum(differences) / n
    std = math.sqrt(sum((d - mean) ** 2 for d in differences) / (n - 1))
    return float(2 * t.sf(abs(mean) / (std / math.sqrt(n)), n - 1))


LOW, HIGH = [0.50, 0.52, 0.47, 0.51], [0.60, 0.63, 0.58, 0.60]
NEAR = [0.51, 0.50, 0.50, 0.50]


@pytest.mark.parametrize(
    ("left", "right", "verdict"),
    [(HIGH, LOW, "agrees"), (LOW, HIGH, "disagrees"), (NEAR, LOW, "cannot be told")],
)
def test_one_comparison(left: list[float], right: list[float], verdict: str) -> None:
    found = decide(made({("A", 1): {"amp": left}, ("B", 1): {"amp": right}}, ahead("A", "B")))[0]
    line = found.lines[0]
    differences = [a - b for a, b in zip(left, right, strict=True)]
    assert found.verdict == verdict
    assert line.difference == pytest.approx(sum(differences) / 4)
    assert line.p == pytest.approx(p_of(differences)) == line.corrected
    assert line.pairs == 4 and line.condition == "ω = 1"


def test_the_verdict_names_the_other_data_or_the_missing_rounds() -> None:
    values = {("A", 1): {"amp": HIGH}, ("B", 1): {"amp": LOW}}
    same = dataclasses.replace(PAPER, rounds=5)
    assert decide(made(values, ahead("A", "B")))[0].told == "agrees, on digits instead of svhn"
    assert decide(made(values, ahead("B", "A"), here=same))[0].told == "disagrees, after 5 rounds instead of 200"
    assert decide(made(values, ahead("B", "A"), here=PAPER))[0].told == "disagrees, in the small form"
    whole = made(values, ahead("B", "A"), here=PAPER)
    whole = dataclasses.replace(whole, record=dataclasses.replace(whole.record, profile="paper"))
    assert decide(whole)[0].told == "disagrees"
    own = dataclasses.replace(HERE, dataset="/home/me/mine.npz")
    assert decide(made(values, ahead("A", "B"), here=own))[0].told == "agrees, on mine.npz instead of svhn"
    values = {("A", 1): {"amp": NEAR}, ("B", 1): {"amp": LOW}}
    assert decide(made(values, ahead("A", "B")))[0].told == "cannot be told"


def test_less_is_better_for_a_metric_that_is_minimised() -> None:
    found = decide(made({("A", 1): {"fm": LOW}, ("B", 1): {"fm": HIGH}}, ahead("A", "B", "fm")))[0]
    assert found.verdict == "agrees" and found.lines[0].difference > 0


def test_fewer_than_two_seeds_tell_nothing() -> None:
    found = decide(made({("A", 1): {"amp": HIGH[:1]}, ("B", 1): {"amp": LOW}}, ahead("A", "B")))[0]
    assert found.verdict == "cannot be told" and "fewer than two seeds" in found.why


def test_a_cell_without_a_result_tells_nothing() -> None:
    values = {("A", 1): {"amp": HIGH}, ("B", 1): {"amp": []}}
    found = decide(made(values, ahead("A", "B")))[0]
    assert found.verdict == "cannot be told" and found.why == "1 of 1 comparisons have no result yet."


def test_of_a_part_its_comparisons_decide_and_the_others_are_told() -> None:
    """One missing cell does not silence a sentence, and does not pass unsaid either."""
    cells: dict[tuple[str, Any], Mapping[str, list[float]]] = {
        (row, omega): {"amp": HIGH if row == "A" else LOW} for row in ("A", "B") for omega in (1, 0.1)
    }
    whole = made(cells, ahead("A", "B"), ahead("A", "B", where={"omega": [0.1]}))
    part = dataclasses.replace(whole, runs={key: run for key, run in whole.runs.items() if key != ("B", (0.1,))})
    both, none = decide(part)
    agrees = "agrees, on digits instead of svhn"
    assert [found.told for found in decide(whole)] == [agrees, agrees]
    assert both.told == f"{agrees}, in 1 of 2 comparisons, as the others have no result"
    assert both.why.startswith("1 of 2 comparisons have no result yet. Of the others: The comparison has the paper's")
    assert [line.verdict for line in both.lines] == ["agrees", "no result"]
    assert (none.verdict, none.told) == ("not run", "not run")
    text = "\n".join(reproduction_page(part, decide(part), "fedtune reproduce x", finished=False).sections)
    assert text.count("not run<br>") == 1 and "in 3 of 4 cells" in text


def test_a_difference_without_a_spread_cannot_be_tested() -> None:
    same = [0.25, 0.5, 0.75, 0.125]
    shifted = [value + 0.125 for value in same]  # exact in binary
    found = decide(made({("A", 1): {"amp": shifted}, ("B", 1): {"amp": same}}, ahead("A", "B")))[0]
    assert found.verdict == "cannot be told"
    assert found.why.endswith("no test is possible: the difference is the same under every seed.")
    equal = decide(made({("A", 1): {"amp": same}, ("B", 1): {"amp": same}}, ahead("A", "B")))[0]
    assert equal.verdict == "cannot be told" and equal.why == "The comparison has no difference, p = 1."


def test_all_comparisons_of_a_sentence_are_corrected_together() -> None:
    """Each alone would be significant; of three, the largest p decides, and two are multiplied."""
    shifts = [0.100, 0.020, 0.012]
    noise = [0.0, 0.004, -0.004, 0.001]
    values: dict[tuple[str, Any], Mapping[str, list[float]]] = {}
    for omega, shift in zip((1, 0.1, 0.01), shifts, strict=True):
        values["B", omega] = {"amp": LOW}
        values["A", omega] = {"amp": [low + shift + n for low, n in zip(LOW, noise, strict=True)]}
    found = decide(made(values, ahead("A", "B")))[0]
    alone = [p_of([shift + n for n in noise]) for shift in shifts]
    assert alone[0] < alone[1] < alone[2] < 0.05
    holm = [3 * alone[0], max(3 * alone[0], 2 * alone[1]), max(3 * alone[0], 2 * alone[1], alone[2])]
    assert [line.corrected for line in found.lines] == pytest.approx(holm)
    assert max(holm) < 0.05 and found.verdict == "agrees"
    assert found.why == (
        "3 of 3 comparisons have the paper's sign, 3 of them significantly; 0 are significantly against it."
    )


@pytest.mark.parametrize(
    ("better", "worse", "every", "most"),
    [
        (3, 0, "agrees", "agrees"),
        (2, 1, "disagrees", "agrees"),
        (1, 2, "disagrees", "disagrees"),
        (1, 0, "cannot be told", "cannot be told"),
        (2, 0, "cannot be told", "agrees"),
    ],
)
def test_every_case_or_most_of_them(better: int, worse: int, every: str, most: str) -> None:
    """Three conditions, of which so many are clearly better and so many clearly worse; the others are equal."""
    values: dict[tuple[str, Any], Mapping[str, list[float]]] = {}
    far = [[low + 0.3 + n for low, n in zip(LOW, (0, 0.001, -0.001, 0.002), strict=True)], LOW]
    for i, omega in enumerate((1, 0.1, 0.01)):
        left, right = far if i < better else far[::-1] if i < better + worse else (NEAR, NEAR)
        values["A", omega], values["B", omega] = {"amp": left}, {"amp": right}
    assert decide(made(values, ahead("A", "B")))[0].verdict == every
    assert decide(made(values, ahead("A", "B", most=True)))[0].verdict == most


def test_conditions_are_chosen_and_compared_with_each_other() -> None:
    values = {("A", 1): {"amp": HIGH}, ("A", 0.1): {"amp": LOW}, ("B", 1): {"amp": NEAR}, ("B", 0.1): {"amp": HIGH}}
    only = decide(made(values, ahead("A", "B", where={"omega": [1]})))[0]
    assert [line.condition for line in only.lines] == ["ω = 1"]
    falls = Claim("all fall", "p. 1", ("amp",), Side((), {"omega": 1}), Side((), {"omega": 0.1}))
    found = decide(made(values, falls))[0]
    assert [(line.ahead, line.behind) for line in found.lines] == [("A", "A"), ("B", "B")]
    assert found.lines[0].condition == "ω = 1 against ω = 0.1"
    assert [line.difference > 0 for line in found.lines] == [True, False] and found.verdict == "disagrees"


# -- values that are alike -----------------------------------------------------------------------------------------


def alike(differences: list[float], within: float = 0.01) -> Decided:
    """Of one row with these differences between its values at 0.5 and 1, seed by seed."""
    row = Row("A", "fedmdcg", "lambdas", {}, varies="lambda1")
    claim = Claim("all are alike", "p. 1", ("amp",), Side((), {}), Side((), {}), without={"value": [0]}, within=within)
    one = dataclasses.replace(
        declared("fedmdcg-fig6"), rows=(row,), columns={"value": [0, 0.5, 1]}, metrics=("amp",), claims=(claim,)
    )
    values = {0: LOW, 0.5: [low + d for low, d in zip(LOW, differences, strict=True)], 1: LOW}
    runs: Any = {
        ("A", (value,)): Cell(f"A {value}", {"amp": dict(zip(SEEDS, found, strict=True))})
        for value, found in values.items()
    }
    return decide(Made(Path("x"), ReproductionRecord(one.name, "small", HERE, PAPER, {}), one, runs))[0]


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ([0.001, -0.001, 0.002, -0.002], "agrees"),
        ([-0.001, 0.001, -0.002, 0.002], "agrees"),
        ([0.05, 0.052, 0.049, 0.051], "disagrees"),
        ([-0.05, -0.052, -0.049, -0.051], "disagrees"),
        ([0.03, -0.03, 0.02, -0.02], "cannot be told"),
        ([0.009, 0.010, 0.011, 0.009], "cannot be told"),
    ],
)
def test_values_are_alike_where_differences_are_surely_small(differences: list[float], verdict: str) -> None:
    """Two one-sided t tests against the limit, by SciPy's own; a difference that is not told from 0 is not enough."""
    found = alike(differences)
    (line,) = found.lines
    mean = sum(differences) / 4
    above, below = (
        float(ttest_1samp(differences, end, alternative=side).pvalue)
        for end, side in ((-0.01, "greater"), (0.01, "less"))
    )
    assert found.verdict == verdict
    assert line.difference == pytest.approx(0.01 - abs(mean)) and line.condition == "value = 0.5 against value = 1"
    assert line.p == pytest.approx(max(above, below) if abs(mean) < 0.01 else 1 - max(above, below))
    assert "differences are smaller than 1 point" in found.why


# -- a region ------------------------------------------------------------------------------------------------------


def values_of(folder: Path, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Last values (cells, seeds) and which cells are in DFRD's region for SVHN, read from the files alone."""
    found, inside = [], []
    points = [(a, b) for a in synthetic.ALPHA for b in synthetic.LAMBDA]
    for number, (alpha, lam) in enumerate(points):
        path = folder / run_folder.CELLS / "01-dfrd" / run_folder.trial_folder(number) / run_folder.ROUNDS
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        found.append([row[metric] for row in rows if row["round"] == 5])
        inside.append(alpha < 1.25 and lam > 0.5)
    return np.array(found), np.array(inside)


def test_a_region_is_compared_with_the_other_cells(tmp_path: Path) -> None:
    one = heatmap(tmp_path / "fig5")
    high, low = decide(one)
    for decided, metric, sign in ((high, "global_accuracy", 1), (low, "local_accuracy", -1)):
        values, inside = values_of(tmp_path / "fig5", metric)
        apart = sign * (values[inside].mean() - values[~inside].mean())
        assert decided.lines[0].difference == pytest.approx(apart)
        each = values[inside].mean(axis=0) - values[~inside].mean(axis=0)
        assert len(set(np.sign(each))) == 1
        means, draws = values.mean(axis=1), np.random.default_rng(5)
        shuffled = [draws.permutation(inside) for _ in range(4000)]
        null = np.array([means[s].mean() - means[~s].mean() for s in shuffled])
        two_sided = (np.abs(null) >= abs(apart)).mean()
        assert decided.lines[0].p == pytest.approx(two_sided, abs=0.02)
        assert decided.lines[0].p < 0.05
    assert high.told == "agrees, on digits instead of svhn"
    assert low.told == "disagrees, on digits instead of svhn"
    assert "8 cells inside α < 1.25 and λ > 0.5, 22 outside" in high.why


def test_one_seed_tells_nothing_of_a_region(tmp_path: Path) -> None:
    one = heatmap(tmp_path / "fig5", seeds=(0,))
    assert {found.verdict for found in decide(one)} == {"cannot be told"}


# -- the page and the files ----------------------------------------------------------------------------------------


def test_the_page_of_a_heat_map(tmp_path: Path) -> None:
    one = heatmap(tmp_path / "fig5")
    decided = decide(one)
    text = write_all(one, decided, "fedtune reproduce dfrd-fig5 --small", finished=True).read_text()
    assert "agrees, on digits instead of svhn" in text and "α &lt; 1.25 and λ &gt; 0.5" in text
    assert 'data-figure="heatmap"' in text
    lines = (tmp_path / "fig5" / run_folder.NUMBERS).read_text().splitlines()
    assert len(lines) == 1 + 2 * 30 and lines[0].startswith("alpha,lambda,metric,unit,mean,std,n,inside_region")


def test_the_page_of_lines_through_one_point(tmp_path: Path) -> None:
    """The figure has a line for each row, the cell that all share is one run, and there are no numbers of a paper."""
    one = lines(tmp_path / "fig6")
    assert len(one.runs) == 4 + 6 and len(one.distinct) == 5 and (one.planned, one.missing) == (37, 32)
    text = write_all(one, decide(one), "fedtune reproduce fedmdcg-fig6", finished=False).read_text()
    drawn = ('data-figure="box"', 'data-figure="factor"', "it prints no numbers", "λ = 0.25")
    assert all(words in text for words in drawn)
    drawn = joined([one]).figure("factor")
    assert {trace.name for trace in drawn.data if trace.showlegend} == {row.name for row in one.reproduction.rows}
    assert [trace.x for trace in drawn.data if trace.name == "λ₅"] == [(0.0, 0.5, 1.0)], "of one metric, as made up"
    similar, _ = decide(one)
    assert len(similar.lines) == 2 * 6 * 5 and sum(line.pairs > 0 for line in similar.lines) == 2


def test_a_table_is_written_as_the_paper_lays_it_out(tmp_path: Path) -> None:
    values = {("FedAvg", 1): {"amp": LOW, "wlp": LOW}, ("FedKF", 1): {"amp": HIGH, "wlp": LOW}}
    values |= {("FedAvg", 0.1): {"amp": NEAR, "wlp": LOW}, ("FedKF", 0.1): {"amp": HIGH, "wlp": LOW}}
    one = dataclasses.replace(made(values, ahead("FedKF", "FedAvg")), path=tmp_path)
    write_all(one, decide(one), "fedtune reproduce x", finished=True)
    tex, text, plain = ((tmp_path / run_folder.TABLES[kind]).read_text() for kind in ("tex", "md", "csv"))
    low, high = (f"{100 * sum(v) / 4:.2f} ± {100 * float(np.std(v, ddof=1)):.2f}" for v in (LOW, HIGH))
    assert tex.count(r"\toprule") == text.count("| --- |") == 1, "one table of all metrics"
    assert r" & \multicolumn{2}{c}{$\omega$ = 1} & \multicolumn{2}{c}{$\omega$ = 0.1} \\" in tex
    assert r"method & AMP [\%] & WLP [\%] & AMP [\%] & WLP [\%] \\" in tex
    marked = high.replace("±", r"$\pm$")
    assert rf"FedKF & \textbf{{{marked}}}" in tex and tex.index("FedAvg &") < tex.index("FedKF &")
    data = one.here.data
    assert rf"| method | {data}, ω = 1, AMP \[%\] | {data}, ω = 1, WLP \[%\] | {data}, ω = 0.1, AMP \[%\] |" in text
    assert f"| FedAvg | {low} |" in text and f"**{high}**" in text
    rows = list(csv.DictReader(plain.splitlines()))
    assert [(row["metric"], row["row"], row["omega"]) for row in rows[:3]] == [
        ("amp", "FedAvg", "1"),
        ("amp", "FedAvg", "0.1"),
        ("amp", "FedKF", "1"),
    ]
    assert len(rows) == 8 and rows[0]["n"] == "4"


def test_a_table_without_columns_has_a_head(tmp_path: Path) -> None:
    plain = made({("FedAvg", 1): {"amp": LOW}, ("FedKF", 1): {"amp": HIGH}}, ahead("FedKF", "FedAvg"))
    runs = {(row, ()): run for (row, _), run in plain.runs.items()}
    bare = dataclasses.replace(plain.reproduction, columns={}, by=("dataset",))
    files = table_files(dataclasses.replace(plain, reproduction=bare, runs=runs))
    assert rf"method & {plain.here.data} \\" in files["tex"] and f"| method | {plain.here.data} |" in files["md"]


def test_a_heat_map_or_an_empty_table_has_no_table_files(tmp_path: Path) -> None:
    one = heatmap(tmp_path / "fig5")
    write_all(one, decide(one), "fedtune reproduce dfrd-fig5 --small", finished=True)
    assert not any((one.path / name).exists() for name in run_folder.TABLES.values())
    assert table_files(dataclasses.replace(made({("A", 1): {"amp": LOW}}), runs={})) == {}


def test_the_page_of_a_table_has_both_numbers() -> None:
    one = made({("FedAvg", 1): {"amp": HIGH}, ("<FedKF>", 1): {"amp": LOW}}, ahead("FedAvg", "<FedKF>"))
    theirs = dataclasses.replace(PAPER, dataset="emnist_letters32")
    one = dataclasses.replace(one, record=dataclasses.replace(one.record, paper=theirs))
    text = "\n".join(reproduction_page(one, decide(one), "fedtune reproduce x", finished=False).sections)
    mean = 100 * sum(HIGH) / 4
    assert f"{mean:.2f}" in text and "83.78" in text  # Table V: FedAvg, EMNIST, α = 1
    assert "&lt;FedKF&gt;" in text and "<FedKF>" not in text
    assert "Not all of it has been run: 8 federations have ended in 2 of 2 cells." in text


def test_a_number_is_compared_with_the_papers_on_its_own_terms() -> None:
    """Welch's t test against 61.89 ± 0.81 of three seeds (FedKF, Table XII), written out."""
    theirs = Setting("cifar10", "resnet8", 20, 100, 3)
    one = declared("fedkf-table12")
    values = [0.60, 0.59, 0.61]
    runs: Any = {("FedAvg", ()): Cell("FedAvg", {"amp": dict(zip(SEEDS, values, strict=False))})}
    record = ReproductionRecord(one.name, "paper", theirs, theirs, {})
    found = next(n for n in every_number(Made(Path("x"), record, one, runs)) if (n.row, n.metric) == ("FedAvg", "amp"))
    variances = 1.0**2 / 3, 0.81**2 / 3
    statistic = (60.0 - 61.89) / math.sqrt(sum(variances))
    freedom = sum(variances) ** 2 / (variances[0] ** 2 / 2 + variances[1] ** 2 / 2)
    assert found.judged.p == pytest.approx(2 * t.sf(abs(statistic), freedom))
    assert found.judged.p > 0.05 and found.verdict == "agrees" and found.judged.difference == pytest.approx(-1.89)
    for changed in (dataclasses.replace(record, profile="small"), dataclasses.replace(record, here=HERE)):
        again = every_number(Made(Path("x"), changed, one, runs))[0]
        assert again.verdict in ("cannot be told", "not comparable: other data set")
        assert again.judged.p != again.judged.p


def test_a_reproduction_knows_its_places() -> None:
    one: Reproduction = declared("fedkf-table5")
    assert one.places == [(1,), (0.1,), (0.01,)] and len(one.rows) == 9
