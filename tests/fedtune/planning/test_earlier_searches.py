"""What a search learns from those beside it: of which, from what, and that it stays what it was."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from analysis.estimate import estimate, standing
from analysis.estimate.prior import FLAT, FLAT_OF_SHARES, Prior, learnt
from analysis.runs import Run, load_run
from analysis.runs.experiment import Learnt
from fedtune.planning import earlier_searches
from fedtune.planning.earlier_searches import note, said_before
from fedtune.planning.warm_start import named
from fedtune.record.experiment import Experiment
from search_spaces import run_folder
from search_spaces.space import Space
from tests.fedtune.conftest import experiment, space
from tests.fedtune.played import FACTS, begin, play, searched

#: Of the search to come.
OURS = {"seeds": (7, 8)}


def said(folder: Path, where: Space | None = None, facts: Any = FACTS, **changes: Any) -> Learnt | None:
    made = experiment(folder, **{**OURS, **changes})
    return said_before(folder, made, space() if where is None else where, facts)


def grid(run: Run) -> Any:
    """What a run's own trials say."""
    found = standing(run.frozen[run.taken :], 1.0, run._by_seed, prior=FLAT_OF_SHARES)
    assert found is not None
    return found.belief.grid


def after_these(*runs: Run) -> Any:
    """What is believed after their own trials, of an accuracy."""
    return learnt([grid(run) for run in runs], FLAT_OF_SHARES)


def test_it_learns_from_all_that_searched_the_same(tmp_path: Path) -> None:
    """On other data and other seeds too; the record is the mean of their weights with what nobody knows."""
    one = searched(tmp_path / "one")
    other = searched(tmp_path / "other", seeds=(2, 3), facts={**FACTS, "dataset": {"name": "toy", "hash": "d2"}})
    found = said(tmp_path / "new")
    assert found is not None and found.runs == ("one", "other")
    assert found.prior == after_these(one, other)
    assert found.prior.noises != FLAT.noises
    assert note(found) == [
        "What is said of the winner begins with how noisy earlier searches of this space were (one, other); "
        "--warm-start none begins without."
    ]


def test_of_many_the_latest_are_read_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place, name in enumerate(("c", "b", "a")):
        searched(tmp_path / name, seeds=(2 * place, 2 * place + 1))
        path = tmp_path / name / run_folder.PROVENANCE
        path.write_text(json.dumps(json.loads(path.read_text()) | {"created": f"2026-0{place + 1}-01T00:00:00+00:00"}))
    read = list[str]()
    load = earlier_searches.load
    monkeypatch.setattr(earlier_searches, "load", lambda path: (read.append(path.name), load(path))[1])
    monkeypatch.setattr(earlier_searches, "MOST", 2)
    found = said(tmp_path / "new")
    assert found is not None and (found.runs, read) == (("a", "b"), ["a", "b"])


def wider() -> Space:
    usual = space()
    return dataclasses.replace(
        usual, search={**usual.search, "alpha": dataclasses.replace(usual.search["alpha"], high=1.5, grid=None)}
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"where": wider()},
        {"method": "fedprox", "where": dataclasses.replace(space(), method="fedprox")},
        {"metric": ("val_wlp",)},
        {"metric": ("val_global_accuracy", "val_wlp")},
        {"select_on": "test"},
        {"seeds": (1, 2)},
        {"seeds": (1,)},
    ],
)
def test_it_learns_nothing_from_others(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Another space, method or measure; the same federations, of which one seed in common is enough."""
    searched(tmp_path / "one")
    assert said(tmp_path / "new", **changes) is None and note(None) == []


@pytest.mark.parametrize(("theirs", "ours"), [("every", "end"), ("end", "every")])
def test_how_often_the_test_set_was_measured_makes_no_other_federations(tmp_path: Path, theirs: str, ours: str) -> None:
    searched(tmp_path / "one", values={"eval_test": theirs})
    assert said(tmp_path / "new", seeds=(0, 1), values={"rounds": 9, "eval_test": ours}) is None


def test_other_federations_of_the_same_seeds_do_count(tmp_path: Path) -> None:
    searched(tmp_path / "one")
    assert said(tmp_path / "new", seeds=(0, 1), values={"rounds": 9, "lr": 0.1}) is not None
    assert said(tmp_path / "new", seeds=(0, 1)) is None


def test_a_folder_that_is_damaged_or_something_else_is_passed_by(tmp_path: Path) -> None:
    """Nobody asked for what stands beside the search."""
    one = searched(tmp_path / "one")
    shutil.copytree(one.path, tmp_path / "torn")
    (tmp_path / "torn" / run_folder.STUDY).write_text("no journal")
    shutil.copytree(one.path, tmp_path / "without")
    (tmp_path / "without" / run_folder.EXPERIMENT).unlink()
    (tmp_path / "notes").mkdir()
    (tmp_path / "file.txt").write_text("mine")
    found = said(tmp_path / "new")
    assert found is not None and found.runs == ("one",)
    assert said(tmp_path / "nowhere" / "new") is None


def test_few_federations_say_nothing(tmp_path: Path) -> None:
    searched(tmp_path / "one", trials=4, seeds=(0,))
    assert said(tmp_path / "new") is None


def test_results_taken_from_another_run_are_not_counted_twice(tmp_path: Path) -> None:
    old = searched(tmp_path / "elsewhere" / "old")
    begin(tmp_path / "runs" / "mine", old, sampler="random", scheduler="none", trials=6)
    mine = play(tmp_path / "runs" / "mine")
    assert mine.taken == 6
    found = said(tmp_path / "runs" / "new")
    assert found is not None and found.prior == after_these(mine)
    whole = standing(mine.frozen, 1.0, mine._by_seed, prior=FLAT_OF_SHARES)
    assert whole is not None and found.prior != learnt([whole.belief.grid], FLAT_OF_SHARES)


def test_what_was_learnt_is_recorded_and_moves_the_estimate_alone(tmp_path: Path) -> None:
    """The same trials as without it; read from the record, whatever becomes of the run that said it."""
    one = searched(tmp_path / "one")
    found = said(tmp_path / "new")
    plain = searched(tmp_path / "plain" / "new", **OURS)
    begin(tmp_path / "new", sampler="random", scheduler="none", trials=6, learnt=found, **OURS)
    after = play(tmp_path / "new", sessions=3)
    assert [(t.params, t.values) for t in after.frozen] == [(t.params, t.values) for t in plain.frozen]
    assert after.estimate != plain.estimate and plain.estimate is not None
    by_hand = standing(after.frozen, 1.0, after._by_seed, prior=after_these(one))
    assert by_hand is not None and after.estimate == estimate(by_hand, ends=(0.0, 1.0), paper=after.paper)
    shutil.rmtree(one.path)
    again = load_run(tmp_path / "new")
    assert again.estimate == after.estimate
    written = yaml.safe_load((tmp_path / "new" / run_folder.EXPERIMENT).read_text())["learnt"]
    assert written["runs"] == ["one"] and written["shared"][0][0] == 0.025 and written["absolute"] is True
    assert Experiment.of(again).learnt == found and Experiment.of(plain).learnt is None


def test_a_record_of_an_earlier_version_has_multiples(tmp_path: Path) -> None:
    """It does not say that what a seed does to all alike is a standard deviation."""
    weights = [[0.0, 0.5], [16.0, 0.5]]
    recorded = {"runs": ["one"], "lengths": [[0.4, 1.0]], "noises": [[0.1, 1.0]], "shared": weights}
    begin(tmp_path / "old", sampler="random", scheduler="none", trials=6, **OURS)
    path = tmp_path / "old" / run_folder.EXPERIMENT
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"learnt": recorded}))
    old = play(tmp_path / "old")
    prior = Prior({0.4: 1.0}, {0.1: 1.0}, {0.0: 0.5, 16.0: 0.5})
    assert old.record.learnt is not None and old.record.learnt.prior == prior
    by_hand = standing(old.frozen, 1.0, old._by_seed, prior=prior)
    assert by_hand is not None and old.estimate == estimate(by_hand, ends=(0.0, 1.0), paper=old.paper)


def test_none_stands_alone() -> None:
    problems: list[str] = []
    assert named("none", problems) == () and not problems
    assert named(["runs/a", "runs/b"], problems) == ("runs/a", "runs/b") and not problems
    assert named(["runs/a", "none"], problems) == ()
    assert problems == ["--warm-start must be runs, or none alone, got runs/a, none. Leave none out."]
