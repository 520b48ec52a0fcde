"""Whether a request may keep images, and that what is recorded says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedtune.options import RunRequest, SearchRequest
from fedtune.planning.plan import plan
from fedtune.record.experiment import Experiment
from search_spaces.errors import UserError


def asked(toy: Path, tmp_path: Path) -> dict[str, Any]:
    short = {"clients": 3, "partition": "iid", "rounds": 2}
    return {"dataset": str(toy), "set": short, "keep_images": True, "name": tmp_path / "made"}


def test_a_search_and_a_final_run_record_it(toy: Path, tmp_path: Path) -> None:
    given = asked(toy, tmp_path)
    for made in (plan(SearchRequest("dfrd", **given)), plan(RunRequest("dfrd", seeds=2, **given))):
        assert made.experiment.keep_images
        stored = made.experiment.to_yaml()
        assert stored["keep_images"] is True and Experiment.from_yaml(stored, "here").keep_images


def test_where_data_sets_are_is_recorded(toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that goes on finds them whatever the environment says by then."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDTUNE_DATA", "data")
    given = asked(toy, tmp_path)
    assert plan(SearchRequest("dfrd", **given)).experiment.data_dir == str(tmp_path / "data")
    assert plan(SearchRequest("dfrd", data_dir="mine", **given)).experiment.data_dir == str(tmp_path / "mine")


def test_a_method_without_a_generator_is_refused(toy: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        plan(RunRequest("fedavg", seeds=1, **asked(toy, tmp_path)))
    assert refused.value.problems == (
        "keep_images must be left out for a method without a generator, got 'fedavg'. Leave keep_images out, or "
        "train one of dense, dfrd, dhf, fedcg, fedftg, fedgen, fedkf, fedmdcg.",
    )
