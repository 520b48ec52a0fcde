"""What the returned object shows of a run, from runs on the fake simulation without Ray."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedtune
from fedtune.api.run import Final
from fedtune.api.search import Result
from search_spaces.errors import UserError
from tests.analysis import synthetic, varied
from tests.analysis.auto.test_leaderboard import final
from tests.fedtune.played import searched


def test_a_search(tmp_path: Path) -> None:
    found = fedtune.load(searched(tmp_path / "run", trials=6).path)
    assert isinstance(found, Result) and found.finished and found.best is not None
    assert len(found.trials) == 6
    assert list(found.leaderboard["number"]) == list(found.run.ranked) and found.run.best == found.best.number
    heat = found.figures["heatmap"]
    assert heat.data and "heatmap" in list(found.figures)
    assert found.report(tmp_path / "page.html").read_text().startswith("<!")
    assert "alpha" in found._repr_html_() and "6 complete" in found._repr_html_()
    with pytest.raises(KeyError):
        found.figures["heatmpa"]
    with pytest.raises(UserError, match=r"holds no models\. A search keeps none"):
        found.model()


def test_a_figure_that_cannot_be_drawn_says_why(tmp_path: Path) -> None:
    found = fedtune.load(searched(tmp_path / "run", trials=1).path)
    drawable = set(found.figures)
    assert len(found.figures) == len(drawable)
    with pytest.raises(UserError):
        found.figures["importance"]
    assert "importance" not in drawable


def test_a_final_run(tmp_path: Path) -> None:
    found = fedtune.load(final(tmp_path / "run", 0.4, (10**9, 10**9 + 1)).path)
    assert isinstance(found, Final) and found.folder == tmp_path / "run"
    assert len(found.leaderboard) == 2 and found.best is not None
    model = tmp_path / "run" / "trials" / "0000" / "model-1000000000.safetensors"
    model.touch()
    with pytest.raises(UserError, match=r"no model of seed 3. It has: 1000000000\."):
        found.model(3)


def test_no_figure_averages_over_conditions_of_the_experiment(tmp_path: Path) -> None:
    found = fedtune.load(varied.crossed(tmp_path / "crossed"))
    assert "curves" not in found.figures and "factor" in found.figures
    with pytest.raises(UserError, match="drawn for one condition of the experiment"):
        found.figures["curves"]
    assert found.figure("curves", where={"omega": 0.1, "dataset": "digits"}).data


def test_another_condition_than_all_trials_have_is_refused(tmp_path: Path) -> None:
    found = fedtune.load(synthetic.write(tmp_path / "run", trials=4))
    assert found.figure("curves", where={"dataset": "digits"}).data
    with pytest.raises(UserError, match="nothing under dataset=svhn: all of it is under dataset=digits"):
        found.figure("curves", where={"dataset": "svhn"})
    with pytest.raises(UserError, match="nothing under dataset=svhn: all of it is under dataset=digits"):
        fedtune.export(tmp_path / "run", where=["dataset=svhn"])
    assert fedtune.export(tmp_path / "run", where=["dataset=digits"])["method"] == "dfrd"
    with pytest.raises(UserError, match="nothing under alpha=3: it has no condition alpha"):
        found.figure("curves", where={"alpha": 3})
    with pytest.raises(UserError, match="it has no condition tau"):
        found.figure("curves", where={"tau": "None"})
