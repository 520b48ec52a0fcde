"""`fedtune.auto` on real Ray with a fake simulation: all its steps, its interruptions, and what is read of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from typer.testing import CliRunner

import fedtune
from analysis.runs import Run
from analysis.stats import holm, paired
from fedtune.api.auto import AutoResult, spared
from fedtune.cli import app
from fedtune.execution.ray_session import TuneSession
from fedtune.planning import auto_budget
from search_spaces.errors import UserError
from tests.fedtune.fake import OfEqualMethods, OfMethod
from tests.fedtune.record.test_storage import files_of

METHODS = ("fedavg", "fedprox", "scaffold")
BUDGET = 3 * 3 * 6 + 2 * 6 + 12 * 6  # fresh seeds, final seeds, search


@pytest.fixture(scope="module")
def auto(ray_cluster: None, toy: Path) -> Iterator[Any]:
    costs = {"seconds": 1.0, "seed-rounds": 1.0, "bytes": 3.0, "bytes_up": 1.0}

    def call(folder: Path, **changes: Any) -> AutoResult:
        given: dict[str, Any] = {
            "budget": f"{BUDGET}rounds",
            "methods": METHODS,
            "rounds": 6,
            "fresh_seeds": 3,
            "final_seeds": 2,
            "least": 2,
            "set": {"clients": 3, "omega": 100, "min_samples": 2},
            "slots": 2,
            "per_trial": "cpus=0.5",
            "quiet": True,
            "simulate": OfMethod,
        }
        return fedtune.auto(toy, name=folder, **given | changes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(auto_budget, "measured", lambda *_, **__: dict(costs))
        yield call


@pytest.fixture(scope="module")
def whole(auto: Any, tmp_path_factory: pytest.TempPathFactory) -> AutoResult:
    """A search that nothing interrupted."""
    return cast(AutoResult, auto(tmp_path_factory.mktemp("auto") / "whole"))


def interrupted_after(rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C comes after so many rounds, once."""
    seen, before = [0], TuneSession.on_trial_result

    def result(self: TuneSession, *given: Any) -> None:
        before(self, *given)
        seen[0] += 1
        if seen[0] == rounds:
            self.end.interrupts.pending = True

    monkeypatch.setattr(TuneSession, "on_trial_result", result)


def test_a_final_run_is_priced_with_the_test_set_in_every_round() -> None:
    """Of four rounds two were measured on validation data, for 1 and 3 s, and one on the test set too, for 5 s."""
    lines = {
        (1, 0): {"val_wlp": 0.1, "seconds_evaluation": 1.0},
        (2, 0): {"bytes_up": 1.0, "seconds_evaluation": 0.5},
        (3, 0): {"val_wlp": 0.1, "seconds_evaluation": 3.0},
        (4, 0): {"val_wlp": 0.1, "wlp": 0.1, "seconds_evaluation": 5.0},
    }
    run = cast(Run, SimpleNamespace(lines={7: lines, 8: {(4, 0): lines[4, 0]}}))
    assert [spared(run, number) for number in (7, 8, 9)] == [2 * (5 - 2), 0.0, 0.0]


@pytest.mark.guard("a whole search over methods")
def test_it_finds_the_best_method(whole: AutoResult) -> None:
    assert whole.finished and whole.leader == "fedprox"
    _read(whole.folder, whole)


def test_it_goes_on_where_it_was_interrupted(
    auto: Any, whole: AutoResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice: after seven rounds, and after forty more, when the machine is lost and its mirror is left."""
    monkeypatch.chdir(tmp_path)
    folder, far = tmp_path / "cut", tmp_path / "far" / "mine"
    with monkeypatch.context() as patch:
        interrupted_after(7, patch)
        cut = auto(folder, slots=2, storage=str(far))  # the record is that of two trials at once
    assert cut.interrupted and not cut.finished and cut.unsent is None
    with monkeypatch.context() as patch:
        interrupted_after(40, patch)
        cut = fedtune.resume(folder, quiet=True, simulate=OfMethod, storage=str(far))
    assert cut.interrupted and not cut.finished and files_of(folder) == files_of(far)
    shutil.rmtree(folder)
    resumed = fedtune.resume(far.as_uri(), quiet=True, simulate=OfMethod)
    assert resumed.finished and resumed.folder == tmp_path / "runs" / "mine"
    assert files_of(resumed.folder) == files_of(far)
    left, right = (found.auto.leaderboard.drop(columns="seconds") for found in (whole, resumed))
    assert left.equals(right)
    assert whole.final is not None and resumed.final is not None
    assert whole.final.metrics["global_accuracy"] == resumed.final.metrics["global_accuracy"]
    again = fedtune.resume(whole.folder, quiet=True, simulate=OfMethod)
    assert again.finished and again.auto.leaderboard.equals(whole.auto.leaderboard)


def test_those_that_cannot_be_told_apart_get_further_fresh_seeds(auto: Any, tmp_path: Path) -> None:
    """As far as a quarter of the budget pays: three for two methods beside two for the third."""
    budget = 32 * 6
    given: dict[str, Any] = {"fresh_seeds": None, "budget": f"{budget}rounds", "simulate": OfEqualMethods}
    made = auto(tmp_path / "whole", **given)
    fresh = {name: run.experiment["trials"] for name, run in made.auto.fresh.items()}
    told = fresh.pop("scaffold")
    assert told == 2 and fresh == {"fedavg": 3, "fedprox": 3} and made.leader in fresh
    assert [row.method for row in made.auto.rows][2] == "scaffold"
    seeds = {name: run.experiment["seeds"] for name, run in made.auto.fresh.items()}
    assert seeds["fedavg"] == seeds["fedprox"] and seeds["scaffold"] == seeds["fedavg"][:2]
    assert made.final is not None and not set(made.final.seeds) & set(seeds["fedavg"])


def test_a_budget_in_time_is_one_by_the_clock(auto: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every trial says when it began and ended; one clock runs through all stages, and goes on after an
    interruption. On a slow machine there may be time for one method's trial alone, which is the answer then."""
    costs = {"seconds": 0.01, "seed-rounds": 1.0, "bytes": 3.0, "bytes_up": 1.0}
    monkeypatch.setattr(auto_budget, "measured", lambda *_, **__: dict(costs))
    folder = tmp_path / "timed"
    with monkeypatch.context() as patch:
        interrupted_after(4, patch)
        cut = auto(folder, fresh_seeds=None, final_seeds=1, least=None, budget="22s", methods=("fedavg,fedprox",))
    assert cut.interrupted
    made = fedtune.resume(folder, quiet=True, simulate=OfMethod)
    assert made.finished and made.leader in ("fedavg", "fedprox") and made.auto.final is not None
    stages = [made.auto.searches.values(), made.auto.fresh.values(), [made.auto.final]]
    spans = []
    for runs in stages:
        known = [trial.user_attrs for run in runs for trial in run.frozen]
        assert known and all(0 <= one["began"] <= one["ended"] for one in known)
        spans.append((min(one["began"] for one in known), max(one["ended"] for one in known)))
    assert spans[0][1] <= spans[1][0] and spans[1][1] <= spans[2][0]
    before = max(trial.user_attrs.get("ended", 0) for run in cut.auto.searches.values() for trial in run.frozen)
    assert 0 < before <= spans[0][1], "a trial that was interrupted ends later by the same clock"
    again = fedtune.resume(folder, quiet=True, simulate=OfMethod)
    assert again.finished and again.leaderboard.equals(made.leaderboard)


def _read(folder: Path, whole: AutoResult) -> None:
    """What was written is what other commands read."""
    read = fedtune.load(folder)
    assert isinstance(read, AutoResult) and read.finished and read.leader == "fedprox"
    assert read.best is not None and read.best.method == "fedprox"
    assert read.leaderboard.equals(whole.leaderboard) and "fedprox" in read._repr_html_()
    with pytest.raises(UserError, match="holds no models"):  # the fake makes none
        read.model()
    found = read.auto
    assert found.final is not None
    rows = found.rows
    assert [row.method for row in rows] == sorted(METHODS, key=lambda name: -OfMethod.PEAKS[name])
    seeds = [set(row.fresh) for row in rows]
    assert seeds[0] == seeds[1] == seeds[2] and len(seeds[0]) == 3
    searched = {seed for run in found.searches.values() for seed in run.experiment["seeds"]}
    final = set(found.final.experiment["seeds"])
    assert not seeds[0] & searched and not final & seeds[0] and len(final) == 2
    tests = [paired(rows[0].fresh, row.fresh) for row in rows[1:]]
    assert [row.p for row in rows[1:]] == holm([test.t_p for test in tests])
    assert [row.difference for row in rows[1:]] == [test.difference for test in tests]
    assert sum(row.seed_rounds for row in rows) <= 72
    trials = found.trials
    assert list(trials["place"]) == list(range(len(trials))) and set(trials["method"]) == set(METHODS)
    assert set(found.figures) == {"leaderboard", "budget", "expected"}
    for name in METHODS:
        best = (folder / "best" / f"{name}.yaml").read_text()
        assert f"method: {name}" in best
    page = fedtune.report(folder).read_text()
    assert "Leaderboard" in page and all(f"<td>{name}</td>" in page for name in METHODS)
    compared = fedtune.compare([folder / "fresh" / name for name in METHODS], metrics=["global_accuracy"])
    assert {entry.run for entry in compared.entries} == set(METHODS)
    told = CliRunner().invoke(app, ["status", str(folder)])
    assert told.exit_code == 0 and "finished" in told.output and "fedprox" in told.output
    (row,) = fedtune.runs(folder.parent)
    assert row == fedtune.status(folder) | {"problem": None}
    assert (row["state"], row["leader"], row["trials"]) == ("finished", "fedprox", len(trials))
    listed = CliRunner().invoke(app, ["runs", str(folder.parent)], env={"COLUMNS": "200"}).output.splitlines()[3]
    mean = f"{100 * sum(rows[0].fresh.values()) / 3:.2f} % ["
    assert "whole" in listed and mean in listed and "auto, fedprox leads 2 other methods" in listed
    for part in ("search/fedavg", "search/fedprox"):
        with pytest.raises(UserError, match="is the part of one method in a search over several"):
            fedtune.resume(folder / part)
    with pytest.raises(UserError, match="is the part of one method"):
        fedtune.extend(folder / "search" / "fedavg", trials=3)
    with pytest.raises(UserError, match="Leave --slots out"):
        fedtune.resume(folder, slots=1)
    assert whole.to_json()["leader"] == "fedprox"
