"""The figure of several objectives."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.figures import pareto
from analysis.labels import Labels
from analysis.runs import Run, load_run
from tests.analysis import synthetic


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    metrics = ("val_global_accuracy", "amp", "val_global_loss")
    return load_run(synthetic.write(tmp_path_factory.mktemp("several") / "three", trials=25, metric=metrics))


def test_a_row_per_trial_that_ran_to_its_end(run: Run) -> None:
    drawing = pareto.data([run])
    table, done = drawing.table, {t.number: t.values for t in run.frozen if t.state.name == "COMPLETE"}
    assert {row["trial"]: [row[name] for name in run.metrics] for row in table.to_dict("records")} == done
    assert set(table.loc[table["front"], "trial"]) == set(run.front) and len(done) < len(run.frozen)
    assert table.loc[table["chosen"], "trial"].tolist() == [run.best]
    assert table["volume"].is_monotonic_increasing and 0 < table["volume"].iloc[-1] <= 1
    assert drawing.note == f"{len(run.front)} of {len(done)} completed trials are Pareto-optimal."


def test_three_metrics_make_three_panels_and_the_hypervolume(run: Run) -> None:
    drawn = pareto.FIGURE.draw([run], Labels.of([run]))
    assert drawn.layout.yaxis4.title.text == "hypervolume so far [%]" and "yaxis5" not in drawn.layout
    first = drawn.data[:3]
    assert [trace.name for trace in first] == ["beaten by another trial", "Pareto-optimal", "chosen"]
    assert sum(len(trace.x) for trace in first) == len(pareto.data([run]).table)
    best = dict(zip(run.metrics, run.trial(run.best or 0).values, strict=True))
    assert list(first[2].y) == [100 * best["val_global_accuracy"]] and list(first[2].x) == [100 * best["amp"]]


def test_one_metric_has_no_front(tmp_path: Path) -> None:
    assert pareto.needs([load_run(synthetic.write(tmp_path / "one"))]) == (
        "The Pareto front needs a search for several metrics; this one has one."
    )
