"""The first screen: the winner, how sure that is, what early stopping and chance did, and the next command."""

from __future__ import annotations

import dataclasses
import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from scipy import stats
from typer.testing import CliRunner

from analysis.labels import Labels
from analysis.next_commands import BASELINES
from analysis.report.anonymous import anonymous
from analysis.report.page import Page
from analysis.report.winner_card import next_step, winner_card
from analysis.runs import Run, load_run
from analysis.runs.final_runs import final_runs
from fedtune.cli import app
from fedtune.options import RunRequest
from fedtune.planning.plan import Plan, plan
from search_spaces import run_folder
from search_spaces.parameter import parameters
from tests import study_file
from tests.analysis import synthetic
from tests.analysis.page_text import plain
from trainables.federation import FederationConfig
from trainables.local import LocalTraining

Final = Callable[..., Path]


def screen(run: Run) -> str:
    """The card's text without its tags."""
    page = Page("x")
    winner_card(page, run, Labels.of([run], markup=False), "")
    return plain("".join(page.sections))


@pytest.fixture(scope="module")
def one_seed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic.write(tmp_path_factory.mktemp("runs") / "one", trials=14, seeds=(0,), failures=False)


@pytest.fixture
def search(one_seed: Path, tmp_path: Path) -> Path:
    """A search of one seed that is over."""
    return Path(shutil.copytree(one_seed, tmp_path / "one"))


@pytest.fixture
def final(search: Path) -> Final:
    """Writes a final run of the search's winner beside it."""

    def write(name: str = "one-final", **changed: Any) -> Path:
        run = load_run(search)
        assert run.best is not None
        source: dict[str, Any] = {
            "method": run.method,
            "parameters": run.config(run.best),
            "provenance": {"run": "one", "trial": run.best},
        } | changed
        return synthetic.write(
            search.parent / name, keys=(), seeds=(1000, 1001, 1002), kind="run", failures=False, source=source
        )

    return write


def test_it_names_the_winner_its_interval_and_what_cannot_be_told_from_it(loaded: dict[str, Run]) -> None:
    run = loaded["tpe"]
    found = run.estimate
    assert found is not None and run.best is not None
    text = screen(run)
    assert f"Winner: trial {run.best}" in text and f"α = {run.parameters(run.best)['alpha']:.4g}" in text
    assert f"{100 * found.mean:.2f} % Global accuracy, validation, estimated mean over all seeds" in text
    assert f"90 % interval {100 * found.low:.2f} % to {100 * found.high:.2f} %" in text
    assert f"{len(found.tied)} of {found.configurations} configurations, itself included, cannot be told" in text
    assert f"trials {', '.join(map(str, found.tied))}." in text


def test_it_counts_what_was_stopped_and_what_that_saved(loaded: dict[str, Run]) -> None:
    run = loaded["tpe"]
    stopped = [t for t in run.frozen if t.state.name == "PRUNED"]
    saved = sum(9 - t.user_attrs["rounds"] for t in stopped)
    text = screen(run)
    assert f"{len(stopped)} of 24 trials were stopped early, which saved {saved} rounds of {24 * 9}." in text
    assert "By the search's own model" in text
    assert "Stopped early" not in screen(loaded["grid"])


def test_the_search_is_held_against_fresh_seeds(search: Path, final: Final) -> None:
    assert "On fresh seeds Not tried yet." in screen(load_run(search))
    folder = final()
    run = load_run(search)
    assert run.best is not None
    rows = [
        json.loads(line)
        for path in sorted(folder.glob(f"trials/*/{run_folder.ROUNDS}"))
        for line in path.read_text().splitlines()
    ]
    fresh = [100 * row["val_global_accuracy"] for row in rows if row["round"] == 9]
    searched = 100 * run.frozen[run.best].values[0]
    apart = searched - np.mean(fresh)
    text = screen(run)
    assert (
        f"Global accuracy, validation of trial {run.best}: {searched:.2f} % in the search, {np.mean(fresh):.2f} ± "
        f"{np.std(fresh, ddof=1):.2f} % on 3 fresh seeds (one-final). The search's value was "
        f"{abs(apart):.2f} points too {'good' if apart > 0 else 'bad'}."
    ) in text
    assert run.standing is not None and run.estimate is not None
    low, high = (min(max(bound, 0.0), 1.0) for bound in run.standing.belief.interval(run.standing.ranking[0], 0.9, 3))
    assert low < run.estimate.low and run.estimate.high < high, "three seeds have noise that all of them have not"
    where = "inside" if low <= np.mean(fresh) / 100 <= high else "outside"
    assert (
        f"The mean on fresh seeds lies {where} what the search expected of as many, 90 % interval "
        f"{100 * low:.2f} % to {100 * high:.2f} %."
    ) in text
    assert "fedtune compare" in text


@pytest.mark.parametrize(
    "changed",
    [{"provenance": {"run": "two", "trial": 0}}, {"method": "fedavg"}, {"parameters": {"alpha": 9.0, "lambda": 0.1}}],
    ids=["another search", "another method", "other values"],
)
def test_a_final_run_of_something_else_is_not_taken_for_it(search: Path, final: Final, changed: dict[str, Any]) -> None:
    final(**changed)
    assert final_runs(load_run(search)) == []


def test_a_final_run_with_changed_settings_is_not_taken_for_it(search: Path, final: Final) -> None:
    path = final() / run_folder.EXPERIMENT
    assert len(final_runs(load_run(search))) == 1
    content = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump(content | {"values": content["values"] | {"clients": 3}}))
    assert final_runs(load_run(search)) == []


def test_a_final_run_from_before_the_search_had_more_rounds_is_not_taken_for_it(search: Path, final: Final) -> None:
    folder = final()
    parameters = yaml.safe_load((folder / run_folder.EXPERIMENT).read_text())["source"]["parameters"]
    path = search / run_folder.EXPERIMENT
    content = yaml.safe_load(path.read_text())
    trained = yaml.safe_load((folder / run_folder.EXPERIMENT).read_text())
    trained["source"]["parameters"] = parameters | {"rounds": 9}
    trained["values"]["rounds"] = 9
    (folder / run_folder.EXPERIMENT).write_text(yaml.safe_dump(trained))
    assert content["rounds"] == 9 and len(final_runs(load_run(search))) == 1
    path.write_text(yaml.safe_dump(content | {"rounds": 12, "rounds_before": [9]}))
    assert final_runs(load_run(search)) == []


def test_a_trial_stands_for_all_of_its_configuration(search: Path, final: Final) -> None:
    """A final run of one that ended early, of the first seed or of a further one, is of the configuration."""
    run = load_run(search)
    other = next(trial.number for trial in run.frozen if trial.number != run.best)
    final(parameters=run.config(other), provenance={"run": "one", "trial": other})
    assert [found.trial for found in final_runs(run)] == [other]
    assert run.standing is not None and run.best is not None
    place = {**run.standing.place, other: run.standing.place[run.best]}
    vars(run)["standing"] = dataclasses.replace(run.standing, place=place)
    assert [found.trial for found in final_runs(run)] == [run.best]


def test_a_damaged_neighbour_does_not_stop_the_report(search: Path, final: Final) -> None:
    (final() / run_folder.STUDY).write_bytes(b"kind: run")
    assert "On fresh seeds Not tried yet." in screen(load_run(search))


def test_the_next_command_follows_from_what_was_done(
    search: Path, final: Final, loaded: dict[str, Run], tmp_path: Path
) -> None:
    assert next_step(loaded["tpe"], [])[0].startswith("fedtune resume ")
    part = load_run(synthetic.write(tmp_path / "part", sampler="grid", rounds=3, cells=10, failures=False))
    assert next_step(part, [])[0] == f"fedtune resume {part.path}"
    run = load_run(search)
    assert next_step(run, [])[0] == f"fedtune run {search} --seeds 5"
    folder = final()
    assert next_step(run, final_runs(run))[0] == (
        f"fedtune run fedrolex --set model=cnn_small --rounds 9 --seeds 3 --seed 3 --name {tmp_path}/fedrolex-final "
        f"&& fedtune compare {folder} {tmp_path}/fedrolex-final"
    ), "the problem, the seeds and the width of models are those of the final run, and FedAvg has one width only"


def planned(line: str, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """What the command would carry out."""
    found: list[Plan] = []

    def stop(plan: Plan, _: object) -> None:
        found.append(plan)
        raise KeyboardInterrupt

    monkeypatch.setattr("fedtune.api.run.carry_out", stop)
    CliRunner().invoke(app, shlex.split(line)[1:])
    (plan,) = found
    return plan


@pytest.mark.parametrize(
    ("settings", "method"),
    [
        ({"rho": 10, "sigma": 3, "lr": 0.05}, "fedrolex"),
        ({"rho": 3, "local_epochs": 2}, "fedrolex"),
        ({"rho": 0}, "fedavg"),
        ({"rho": 0, "clients": 20, "active_clients": 5, "omega": 1.0, "lr": 0.05, "local_steps": 7}, "fedavg"),
        ({"rho": 0, "partition": "iid", "batch_size": 16, "momentum": 0.9, "validation_fraction": 0.0}, "fedavg"),
        ({"rho": 0, "dataset": "own images.npz", "clients": 2, "partition": "iid"}, "fedavg"),
    ],
)
def test_the_baseline_is_trained_on_the_problem_of_the_final_run(
    search: Path, final: Final, settings: dict[str, Any], method: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = load_run(search)
    assert run.best is not None
    if "dataset" in settings:
        rng, own = np.random.default_rng(0), tmp_path / str(settings["dataset"])
        y = np.arange(200) % 4
        np.savez(
            own,
            x_train=rng.integers(0, 255, (200, 8, 8), np.uint8),
            y_train=y,
            x_test=np.zeros((8, 8, 8), np.uint8),
            y_test=y[:8],
        )
        settings = settings | {"dataset": str(own)}
    folder = final(parameters=run.config(run.best) | settings)
    (tmp_path / f"{method}-final").mkdir()
    first, _, second = next_step(run, final_runs(run))[0].partition(" && ")
    plan, trained = planned(first, monkeypatch), load_run(folder)
    values = trained.config(0)
    assert plan.experiment.method == method and plan.experiment.seed == trained.experiment["seed"]
    common = [key for key in plan.experiment.values if key in values]
    assert {"dataset", "rounds", "model", "clients", "omega", "rho", "batch_size"} | settings.keys() <= set(common)
    assert {key: plan.experiment.values[key] for key in common} == {key: values[key] for key in common}
    assert shlex.split(second) == ["fedtune", "compare", str(folder), str(plan.folder)]


@pytest.mark.parametrize("method", BASELINES)
def test_what_a_baseline_takes_is_what_is_declared(method: str, tmp_path: Path) -> None:
    shared = parameters(FederationConfig, LocalTraining)
    taken = {**plan(RunRequest(method, name=tmp_path / "made", seeds=2)).experiment.values, "validation_fraction": None}
    assert list(BASELINES[method].items()) == [(key, taken[key]) for key in shared]


def test_a_page_without_names_has_none_in_the_next_command(search: Path, final: Final) -> None:
    path = final() / run_folder.EXPERIMENT
    content = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump(content | {"data_dir": "/home/me/data"}))
    run = load_run(search)
    assert "FEDTUNE_DATA=/home/me/data fedtune run" in next_step(run, final_runs(run))[0]
    line = next_step(anonymous(run), final_runs(run))[0]
    assert "/home" not in line and str(search.parent) not in line and "compare one-final ./fedrolex-final" in line


@pytest.fixture
def papers(search: Path) -> Run:
    """The search with its first trial of the paper's values, which is not its winner."""
    study_file.change(
        search / run_folder.STUDY, lambda trial: trial["user_attrs"].update({"from": run_folder.PAPER}), 0
    )
    run = load_run(search)
    assert run.paper == 0 != run.best
    return run


def test_the_verdict_is_the_first_line(papers: Run, loaded: dict[str, Run]) -> None:
    found = papers.estimate
    assert found is not None and found.gain is not None and found.gain_low is not None and found.gain_high is not None
    interval = f"{100 * found.gain_level:.3g} % interval {100 * found.gain_low:.2f} to {100 * found.gain_high:.2f}"
    gained = f"{100 * found.gain:.2f} points on one seed, {interval}"
    better = (
        "Better than the paper's values by" if found.gain_low > 0 else "No better than the paper's values, as far as"
    )
    text = screen(papers)
    assert text.startswith(better) and f"{gained} Winner: trial {papers.best}" in text
    assert screen(loaded["tpe"]).startswith("Winner: trial"), "a search without the paper's values is held against none"


def test_on_fresh_seeds_the_verdict_is_a_paired_test(papers: Run, search: Path, final: Final) -> None:
    final()
    run = load_run(search)
    line, _ = next_step(run, final_runs(run))
    folder = search.parent
    assert line == (
        f"fedtune export {search} --trial 0 -o one-paper.yaml && fedtune run one-paper.yaml --seeds 3 --seed 3 --name "
        f"{folder}/one-paper && fedtune report {search}"
    )
    final("one-paper", parameters=run.config(0), provenance={"run": "one", "trial": 0})
    fresh = {one.trial: one.over_seeds("global_accuracy") for one in final_runs(run)}
    apart = [100 * (fresh[run.best][seed] - fresh[0][seed]) for seed in sorted(fresh[0])]
    test = stats.ttest_1samp(apart, 0.0)
    low, high = test.confidence_interval(0.95)
    said = f"{np.mean(apart):.2f} points on 3 fresh seeds, 95 % interval {low:.2f} to {high:.2f}, p = {test.pvalue:.2g}"
    text = screen(run)
    assert text.startswith("Better" if low > 0 else "No better") and said in text
    assert "fedrolex" in next_step(run, final_runs(run))[0]


def test_a_tie_is_said(tmp_path: Path) -> None:
    """Every accuracy is cut to one digit, so that several trials end at the same one."""
    folder = synthetic.write(tmp_path / "tie", trials=14, seeds=(0,), failures=False)
    run = load_run(folder)
    for trial in run.frozen:
        trial.values = [round(trial.values[0], 1)]
    top = max(trial.values[0] for trial in run.frozen)
    same = [trial.number for trial in run.frozen if trial.values[0] == top]
    assert len(same) > 1, "the test would show nothing"
    named = ", ".join(map(str, same[:8]))
    assert f"A tie: trials {named}" in screen(run) and f"ended at the same best value, {100 * top:.2f} %;" in screen(
        run
    )
    assert "A tie" not in screen(load_run(folder))


def test_several_objectives_have_a_front_and_no_estimate(loaded: dict[str, Run]) -> None:
    run = loaded["pareto"]
    text = screen(run)
    assert "The knee of the Pareto front" in text and "gives up least of one objective" in text
    assert f"{len(run.front)} trials are Pareto-optimal" in text and "estimated mean" not in text


def test_a_final_run_and_a_run_without_a_result_have_no_such_card(loaded: dict[str, Run], tmp_path: Path) -> None:
    assert screen(loaded["final"]) == ""
    begun = load_run(synthetic.write(tmp_path / "begun", sampler="grid", rounds=3, cells=1))
    assert begun.best is None and screen(begun) == ""
