"""A search with requirements: what keeps them comes first, and how likely it does is said."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from analysis.estimate import standing
from analysis.estimate.prior import FLAT, FLAT_OF_SHARES, Prior
from analysis.report import build
from analysis.runs import Run, load_run
from fedtune.api.search import Best
from tests.analysis.varied import asked
from tests.fedtune.played import searched


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Twelve random trials. The fake's worst local performance is half of its validation accuracy."""
    return searched(tmp_path_factory.mktemp("required") / "run", trials=12)


def requiring(run: Run, *require: str) -> Run:
    return asked(run, require=list(require))


def ends(run: Run, metric: str) -> dict[int, float]:
    """By trial the mean over seeds in the last round, from the rows themselves."""
    last = run.rounds[run.rounds["round"] == run.rounds["round"].max()]
    return {int(n): float(v) for n, v in last.groupby("trial")[metric].mean().items()}  # type: ignore[call-overload]


def test_without_requirements_nothing_changes(run: Run) -> None:
    assert requiring(run).ranked == run.ranked and requiring(run).kept == []


def test_what_keeps_them_comes_first_in_its_order(run: Run) -> None:
    values = ends(run, "val_wlp")
    bound = sorted(values.values())[6]
    # At most the seventh smallest: the best accuracies, which have the largest WLP, are out.
    found = requiring(run, f"val_wlp<={bound!r}")
    keeps = {n for n, value in values.items() if value <= bound}
    assert 0 < len(keeps) < 12 and run.best not in keeps
    assert set(found.ranked[: len(keeps)]) == keeps
    assert found.best in keeps and found.estimate is not None and found.estimate.trial == found.best
    out = found.ranked[len(keeps) :]
    assert set(out) == set(values) - keeps and out == sorted(out, key=lambda n: values[n])


def test_where_none_keeps_them_the_least_miss_wins(run: Run) -> None:
    values = ends(run, "val_wlp")
    found = requiring(run, "val_wlp<=-5")
    assert found.ranked == sorted(values, key=lambda n: values[n])
    (one,) = found.kept
    assert not one.holds and one.value == pytest.approx(values[found.ranked[0]])
    assert one.probability is not None and one.probability < 0.5
    assert one.sentence().startswith("Required val_wlp<=-5: val_wlp is ") and "misses it" in one.sentence()


def test_the_probability_follows_the_bound(run: Run) -> None:
    def probability(bound: float) -> float:
        (one,) = requiring(run, f"val_wlp>={bound}").kept
        assert one.probability is not None
        return one.probability

    values = ends(run, "val_wlp")
    assert run.best is not None
    best = values[run.best]
    easy, even, hard = probability(0.01), probability(best), probability(best + 0.2)
    assert easy > 0.95 > even > hard and hard < 0.2


def test_it_is_that_of_an_accuracy(run: Run) -> None:
    """By the same model as the estimate of one, not by that of any metric."""
    values = ends(run, "val_wlp")
    assert run.best is not None
    bound = values[run.best] + 0.03
    measured = [copy.copy(trial) for trial in run.frozen if trial.number in values]
    for trial in measured:
        trial.values, trial.intermediate_values = [values[trial.number]], {}

    def by_hand(prior: Prior) -> float:
        found = standing(measured, 1.0, prior=prior)
        assert found is not None and run.best is not None
        return found.belief.above(found.place[run.best], bound)

    (one,) = requiring(run, f"val_wlp>={bound}").kept
    assert one.probability == pytest.approx(by_hand(FLAT_OF_SHARES)) != pytest.approx(by_hand(FLAT), rel=1e-4)


def test_what_was_not_measured_is_not_kept(run: Run) -> None:
    (one,) = requiring(run, "psnr<=20").kept
    assert not one.holds and one.probability is None and "was not measured" in one.sentence()


def test_the_result_and_the_report_say_it(run: Run, tmp_path: Path) -> None:
    found = requiring(run, "val_wlp>=0.01")
    assert found.best is not None
    assert Best.of(found, found.best).kept == tuple(found.kept) != ()
    page = build([found], tmp_path / "report.html").read_text()
    assert "What was required" in page and "Required val_wlp&gt;=0.01" in page


def test_it_is_recorded(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"trials": 3, "require": ("val_wlp>=0.01",)}
    assert str(load_run(searched(tmp_path / "run", **changes).path).requirements[0]) == "val_wlp>=0.01"
