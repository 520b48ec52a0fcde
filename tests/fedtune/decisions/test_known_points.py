"""Trials whose values are known before the sampler is asked are run first, and only those."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedtune.decisions.optuna_samplers import SAMPLERS
from fedtune.record.experiment import Experiment
from fedtune.record.journal import StudyFile
from search_spaces.errors import UserError
from tests.fedtune.conftest import start
from tests.fedtune.execution.test_queue import conduct
from tests.fedtune.queues import opened

FIRST = (
    {"from": "the paper's values", "values": {"alpha": 0.5, "lambda": 0.25}},
    {"from": "raced trial 3", "values": {"alpha": 1.25, "lambda": 1.0}},
)


@pytest.mark.parametrize("sampler", [name for name in SAMPLERS if name != "grid"])
def test_known_points_come_first_whatever_samples(tmp_path: Path, sampler: str) -> None:
    found = conduct(tmp_path / "run", 2, sampler=sampler, trials=16, first=FIRST)
    params = [params for _, _, params, *_ in found]
    assert params[:2] == [{"alpha": 0.5, "lambda": 0.25}, {"alpha": 1.25, "lambda": 1.0}]
    assert len({tuple(p.values()) for p in params}) == 16, "the others are proposed"
    origins = [trial.user_attrs.get("from") for trial in StudyFile(tmp_path / "run").study.trials]
    assert origins == ["the paper's values", "raced trial 3", *[None] * 14]
    assert conduct(tmp_path / "cut", 3, every=4, sampler=sampler, trials=16, first=FIRST) == found


def test_random_proposals_stay_what_they_were(tmp_path: Path) -> None:
    without = conduct(tmp_path / "without", 1, sampler="random", scheduler="none")
    with_known = conduct(tmp_path / "with", 1, sampler="random", scheduler="none", first=FIRST)
    assert [params for _, _, params, *_ in with_known[2:]] == [params for _, _, params, *_ in without[2:]]


def test_known_points_are_frozen(tmp_path: Path) -> None:
    start(tmp_path / "run", first=FIRST)
    assert Experiment.read(tmp_path / "run").first == FIRST


@pytest.mark.parametrize("values", [{"alpha": 2.5, "lambda": 0.5}, {"alpha": 0.5}, {"alpha": "x", "lambda": 0.5}])
def test_an_edited_point_outside_the_space_is_refused(tmp_path: Path, values: dict[str, Any]) -> None:
    made = start(tmp_path / "run", first=({"from": "the paper's values", "values": values},))
    with pytest.raises(UserError, match=r"values of first must be a point of the space .*experiment\.yaml"):
        opened(tmp_path / "run", made)
