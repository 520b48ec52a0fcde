"""Results of earlier runs are trials of a new one: seen by sampler and early stopping, shown to readers, never run."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import optuna
import pytest

from analysis.report.trials import trials
from fedtune.api.export import export
from fedtune.decisions import expected_improvement
from fedtune.decisions.early_stopping import Halving
from fedtune.decisions.expected_improvement import Told, Tried
from fedtune.decisions.optuna_samplers import SAMPLERS, make_sampler
from fedtune.record.experiment import Experiment
from search_spaces import run_folder
from tests.fedtune.conftest import frozen, space
from tests.fedtune.played import begin, play, searched
from tests.fedtune.queues import opened, take
from tests.study_file import journal

MODELS = [name for name in SAMPLERS if name not in ("grid", "random")]


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight finished trials, none of them stopped early."""
    folder = tmp_path_factory.mktemp("earlier") / "old"
    searched(folder, trials=8)
    return folder


def warm(folder: Path, old: Path, **changes: Any) -> Experiment:
    """A run that takes the results of `old`, which is deleted before anything is run."""
    copy = folder.parent / f"earlier-{folder.name}" / "old"
    shutil.copytree(old, copy)
    from analysis.runs import load_run

    made = begin(folder, load_run(copy), **{"trials": 4, **changes})
    shutil.rmtree(copy)
    return made.experiment


def test_taken_trials_are_trials_like_any_other(tmp_path: Path, old: Path) -> None:
    warm(tmp_path / "new", old)
    run = play(tmp_path / "new")
    before, after = frozen(old), frozen(tmp_path / "new")
    assert len(after) == 12 and run.taken == 8
    for one, other in zip(before, after[:8], strict=True):
        assert other.pop("attributes") == one.pop("attributes") | {"from": f"old trial {one['number']}"}
        assert one == other
    folder = tmp_path / "new" / run_folder.trial_folder(3)
    assert {path.name for path in folder.iterdir()} == {run_folder.CONFIG, run_folder.PARTITION, run_folder.ROUNDS}
    assert run.config(3)["alpha"] == run.parameters(3)["alpha"] and run.partition(3)[0].tolist() == [[1, 2]]
    assert run.finals.loc[3, "wlp"] > 0


def test_seconds_of_a_taken_trial_are_those_of_its_rounds(tmp_path: Path, old: Path) -> None:
    """Nine rounds of two seeds of 0.01 s; a round that does not tell its time counts nothing."""
    made = warm(tmp_path / "new", old)
    path = tmp_path / "new" / run_folder.trial_folder(1) / run_folder.ROUNDS
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    del rows[0]["seconds"]
    rows[1]["seconds"] = None
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    queue = opened(tmp_path / "new", made)
    found = [trial.user_attrs["seconds"] for trial in queue.trials()]
    assert found == [0.18, 0.16, *[0.18] * 6]


@pytest.mark.parametrize("sampler", ["tpe", "nsga2"])
@pytest.mark.parametrize("scheduler", ["asha", "none"])
def test_width_and_interruptions_change_nothing(tmp_path: Path, old: Path, sampler: str, scheduler: str) -> None:
    for name, width, sessions in (("one", 1, 1), ("three", 3, 1), ("cut", 3, 2)):
        warm(tmp_path / name, old, sampler=sampler, scheduler=scheduler, trials=9)
        play(tmp_path / name, width, sessions)
    assert frozen(tmp_path / "one") == frozen(tmp_path / "three") == frozen(tmp_path / "cut")


def test_a_driver_that_is_killed_while_it_takes_results_loses_none(tmp_path: Path, old: Path) -> None:
    made = warm(tmp_path / "new", old, trials=1)
    opened(tmp_path / "new", dataclasses.replace(made, taken=3))
    take(opened(tmp_path / "new", made))  # trial 3, begun and not ended
    play(tmp_path / "new")
    warm(tmp_path / "whole", old, trials=1)
    play(tmp_path / "whole")
    assert frozen(tmp_path / "new") == frozen(tmp_path / "whole")


@pytest.mark.parametrize("sampler", MODELS)
def test_the_first_new_trial_is_proposed_from_all_taken_results(tmp_path: Path, old: Path, sampler: str) -> None:
    """As Optuna's sampler proposes it on a study of these eight trials."""
    made = warm(tmp_path / "new", old, sampler=sampler, scheduler="none", trials=1)
    found = play(tmp_path / "new").parameters(8)
    assert made.first[-1]["from"] == "old trial 7" and found not in [item["values"] for item in made.first]
    if sampler == "nsga2":
        return  # the first generation of twelve is not full; the next test has more
    known = optuna.load_study(study_name=None, storage=journal(old)).trials
    if sampler == "ei":
        told, had = Told.of(known, 1.0), Tried.of(known)
        assert found == expected_improvement.proposed(space(), told, had, 0, 8)[0].params
        assert found != expected_improvement.proposed(space(), Told(1.0), Tried(), 0, 8)[0].params
        return
    study = optuna.create_study(direction="maximize", sampler=make_sampler(sampler, 0, 8))
    study.add_trials(
        [optuna.trial.create_trial(values=t.values, params=t.params, distributions=t.distributions) for t in known]
    )
    asked = study.ask()
    assert found == {"alpha": asked.suggest_float("alpha", 0, 2), "lambda": asked.suggest_float("lambda", 0, 1)}
    alone = optuna.create_study(direction="maximize", sampler=make_sampler("random", 0, 8)).ask()
    assert found != {"alpha": alone.suggest_float("alpha", 0, 2), "lambda": alone.suggest_float("lambda", 0, 1)}


def test_taken_results_are_the_first_generation_of_nsga2(tmp_path: Path) -> None:
    earlier = searched(tmp_path / "old", trials=13)
    begin(tmp_path / "new", earlier, sampler="nsga2", scheduler="none", trials=1)
    run = play(tmp_path / "new")
    generations = [trial.system_attrs["NSGAIISampler:generation"] for trial in run.frozen]
    assert generations == [0] * 12 + [1, 1], "twelve make a generation"


def test_early_stopping_compares_with_taken_results(tmp_path: Path, old: Path) -> None:
    made = warm(tmp_path / "new", old, grace=3, trials=1)
    queue = opened(tmp_path / "new", made)
    proposal = take(queue)
    assert isinstance(proposal.rule, Halving)
    rows = [
        json.loads(line) for n in range(8) for line in (old / f"trials/{n:04d}/rounds.jsonl").read_text().splitlines()
    ]
    at_3 = [row["val_global_accuracy"] for row in rows if row["round"] == 3]
    means = [(a + b) / 2 for a, b in zip(at_3[::2], at_3[1::2], strict=True)]
    (least,) = proposal.rule.rungs[3][1]
    assert least == pytest.approx((sorted(means)[-3],), rel=1e-12), "a third of nine, its own included, go on"
    assert proposal.rule.stops(3, {3: (-1.0,)}) and not proposal.rule.stops(3, {3: (2.0,)})


def test_several_metrics(tmp_path: Path) -> None:
    metrics = ("val_global_accuracy", "val_wlp")
    earlier = searched(tmp_path / "old", metric=metrics, trials=3)
    begin(tmp_path / "new", earlier, metric=metrics, sampler="tpe", scheduler="asha", trials=3)
    run = play(tmp_path / "new")
    assert [t.values for t in run.frozen[:3]] == [t.values for t in earlier.frozen]
    assert [t.user_attrs["curve"] for t in run.frozen[:3]] == [t.user_attrs["curve"] for t in earlier.frozen]


def test_an_extended_search_is_the_longer_one(tmp_path: Path, old: Path) -> None:
    import dataclasses

    from fedtune.record.run_directory import write_document

    made = warm(tmp_path / "short", old, trials=3)
    play(tmp_path / "short")
    longer = dataclasses.replace(made, trials=made.trials + 4)
    write_document(tmp_path / "short" / run_folder.EXPERIMENT, longer.to_yaml())
    play(tmp_path / "short")
    warm(tmp_path / "long", old, trials=7)
    play(tmp_path / "long")
    assert frozen(tmp_path / "short") == frozen(tmp_path / "long")


def test_readers_tell_what_was_taken(tmp_path: Path, old: Path) -> None:
    from analysis import machines
    from analysis.labels import Labels
    from analysis.report import summary

    warm(tmp_path / "new", old, sampler="random", scheduler="none", trials=1)
    run = play(tmp_path / "new")
    table = trials(run)
    assert [c.title for c in table.columns][-1] == "comes from"
    assert [row["origin"] for row in table.rows] == [*(f"result of old trial {n}" for n in range(8)), ""]
    facts = summary.facts(run, Labels.of([run]))
    assert "8 of them with results of earlier runs" in facts and "9 rounds run in all" in facts
    data = export(tmp_path / "new", trial=2)
    assert data["provenance"]["from"] == "old trial 2" and data["provenance"]["git"] == "abc"
    assert data["provenance"]["versions"] == {"torch": "2.0"} and data["provenance"]["created"].startswith("2026-01-01")
    assert "from" not in export(tmp_path / "new", trial=8)["provenance"]
    assert [part.get("run") for part in machines.parts(run.provenance)] == [None, "old"]
    untouched = trials(searched(tmp_path / "grid", sampler="grid", trials=2))
    assert "comes from" not in [c.title for c in untouched.columns]
