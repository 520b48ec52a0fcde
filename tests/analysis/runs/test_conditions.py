"""A run under several conditions has a best under each and none in all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analysis.runs import Run, load_run
from analysis.runs.conditions import conditions, holds, named
from tests.analysis import varied


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return load_run(varied.fairness(tmp_path_factory.mktemp("runs") / "fairness"))


def test_there_is_no_best_in_all(run: Run) -> None:
    assert run.crossed and run.best is None and run.estimate is None and run.front == [] and run.chosen == []
    assert list(run.keys) == ["merge_op"] and [item["key"] for item in run.searched] == ["merge_op"]
    assert run.conditions == [{"omega": 10.0}, {"omega": 1.0}, {"omega": 0.1}], "as the space lists them"
    assert run.value("omega") == "10, 1, 0.1" and run.value("dataset") == "digits"


def test_each_condition_is_a_run_of_its_own(run: Run) -> None:
    for place, condition in enumerate(run.conditions):
        part = run.within(condition)
        assert not part.crossed and [t.number for t in part.frozen] == [place, place + 3]
        means = {n: np.mean(list(varied.last(run.path, n, "val_global_accuracy").values())) for n in (place, place + 3)}
        assert part.best == max(means, key=lambda n: means[n])
        assert part.over_seeds("global_accuracy") == varied.last(run.path, part.best, "global_accuracy")
        assert part.value("omega") == condition["omega"] and part.trial(place + 3).params["merge_op"] == "add"


def test_a_run_without_conditions_has_the_empty_one(tmp_path: Path) -> None:
    from tests.analysis import synthetic

    plain = load_run(synthetic.write(tmp_path / "plain", failures=False))
    assert plain.conditions == [{}] and not plain.crossed and plain.best is not None
    assert conditions([], []) == [{}] and holds({}, {"a": 1}) and not holds({"a": 2}, {"a": 1})
    assert named({"omega": 0.1, "use_ema": True, "dataset": "digits"}) == "omega=0.1, use_ema=true, dataset=digits"
