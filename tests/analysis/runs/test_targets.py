"""A search for the fewest rounds or bytes to a target: a trial that does not reach it is censored, not a number."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

import fedtune
from analysis.estimate import standing
from analysis.figures import pareto
from analysis.labels import told
from analysis.runs import Run
from fedtune.decisions.history import Part
from fedtune.decisions.next_trial import shown as shown_to_sampler
from search_spaces import run_folder
from search_spaces.metrics import METRICS, UNREACHED, is_unreached
from search_spaces.requirements import read
from tests.analysis import varied
from tests.fedtune import played
from tests.fedtune.conftest import space
from tests.fedtune.fake import Fake
from tests.trials import frozen_trial
from trainables.worker.trial_values import TrialValues

METRIC = "val_bytes_to_target"


class Waits(Fake):
    """Reaches values["target"] or not; a round sends `100 * alpha` bytes, so that alpha decides what it costs."""

    def __init__(self, *args: Any, **rest: Any) -> None:
        super().__init__(*args, **rest)
        self.reached: dict[int, int] = {}

    def step(self) -> list[dict[str, Any]]:
        rows = super().step()
        for row in rows:
            if row["val_global_accuracy"] >= self.values["target"]:
                self.reached.setdefault(row["seed"], self.round)
            first = self.reached.get(row["seed"])
            row["val_rounds_to_target"] = first
            row["val_bytes_to_target"] = None if first is None else round(first * 100 * self.values["alpha"])
        return rows


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Fifteen random trials of two seeds; some reach 0.7 on both seeds, others on none."""
    folder = tmp_path_factory.mktemp("targets") / "run"
    return played.searched(folder, trials=15, metric=(METRIC,), values={"target": 0.7}, simulate=Waits)


def costs(run: Run) -> dict[int, float]:
    """By trial its mean over seeds, from the lines of its file; infinity where a seed has none."""
    found = {}
    for trial in run.frozen:
        lines = (run.path / run_folder.trial_folder(trial.number) / run_folder.ROUNDS).read_text().splitlines()
        last = [row[METRIC] for row in map(json.loads, lines) if row["round"] == 9]
        found[trial.number] = math.inf if None in last else sum(last) / len(last)
    return found


def test_the_two_wait_for_a_target_and_no_other() -> None:
    waiting = {name for name, metric in METRICS.items() if metric.to_target}
    assert waiting == {f"{prefix}{what}_to_target" for prefix in ("", "val_") for what in ("rounds", "bytes")}
    assert all(METRICS[name].direction == "minimize" and METRICS[name].needs == "target" for name in waiting)


def test_a_trial_that_never_reaches_it_ends_as_any_other(run: Run) -> None:
    expected = costs(run)
    open_ = {number for number, cost in expected.items() if math.isinf(cost)}
    assert 3 <= len(open_) <= 12
    assert {trial.state.name for trial in run.frozen} == {"COMPLETE"}
    for trial in run.frozen:
        assert trial.values is not None
        assert trial.values == [expected[trial.number]] or trial.number in open_ and is_unreached(trial.values[0])
    shown = run.trials.set_index("number")["value"]
    assert set(shown[shown.isna()].index) == open_


def test_those_that_reach_it_come_first_and_alone_are_estimated(run: Run) -> None:
    expected = costs(run)
    reached = {number for number, cost in expected.items() if math.isfinite(cost)}
    assert set(run.ranked[: len(reached)]) == reached and set(run.ranked) == set(expected)
    assert run.ranked[len(reached) :] == sorted(set(expected) - reached)
    assert run.estimate is not None and run.estimate.configurations == len(reached)
    assert run.best in reached and set(run.estimate.tied) <= reached
    low, high = min(expected[n] for n in reached), max(expected[n] for n in reached)
    assert low * 0.5 <= run.estimate.mean <= high, "an unreached target has no part in it"


def test_what_is_told_of_it(run: Run, tmp_path: Path) -> None:
    last = run.ranked[-1]
    assert told(METRIC, run.trial(last).values[0]) == "not reached"  # type: ignore[index]
    assert run.over_seeds(METRIC) and not _alone(run, last).over_seeds(METRIC)
    found = fedtune.load(run.path)
    page = found.report(tmp_path / "page.html").read_text()
    assert "e+100" not in page and "1e100" not in page
    assert json.loads(json.dumps(found.to_json()))["best"]["values"][METRIC] == pytest.approx(costs(run)[run.best or 0])


def _alone(run: Run, number: int) -> Run:
    """The run as if `number` were its only trial."""
    return dataclasses.replace(run, frozen=[run.trial(number)])


def test_where_none_reaches_it_the_first_trial_stands_for_all(run: Run) -> None:
    open_ = [number for number, cost in costs(run).items() if math.isinf(cost)]
    none = dataclasses.replace(run, frozen=[run.trial(number) for number in open_])
    assert none.estimate is None and none.ranked == open_
    assert fedtune.load(run.path).best is not None


def test_a_requirement_on_what_is_not_reached(run: Run) -> None:
    reached = {number for number, cost in costs(run).items() if math.isfinite(cost)}
    asked = varied.asked(run, require=["val_rounds_to_target<=100"])
    assert {number for number in costs(run) if asked.missed(number) == 0} == reached
    (one,) = asked.kept
    assert one.holds and one.probability is None
    lost = dataclasses.replace(_alone(asked, run.ranked[-1]))
    (missed,) = lost.kept
    assert missed.sentence() == (
        "Required val_rounds_to_target<=100: val_rounds_to_target is none, as the target was not reached, which misses "
        "it."
    )


@pytest.mark.parametrize("value", [None, math.nan, UNREACHED, UNREACHED / 3])
def test_no_bound_from_above_is_kept_and_none_from_below_missed(value: float | None) -> None:
    assert read("bytes_to_target<=1e30").missed(value) == math.inf
    assert read("bytes_to_target>=5").missed(value) == 0.0


def test_a_seed_that_does_not_reach_it_censors_the_mean() -> None:
    values = TrialValues((METRIC,), (-1,))
    for round_, pair in enumerate([(None, None), (70, None), (70, 90)], start=1):
        rows = [{"round": round_, "seed": seed, METRIC: value} for seed, value in enumerate(pair)]
        values.add(rows)
        assert values.broken(rows) is None, "it is not diverged"
    assert list(map(is_unreached, [values.curve[1][0], values.curve[2][0]])) == [True, True]
    assert values.curve[2][0] < values.curve[1][0], "one seed more has reached it"
    assert values.curve[3] == (80.0,) and values.signed[3] == (-80.0,)
    assert values.broken([{"round": 4, "seed": 0, METRIC: math.nan}]) == METRIC
    assert values.broken([{"round": 4, "seed": 0, "train_loss": None}]) == "train_loss"


def _trials(*given: tuple[float, float, list[float]]) -> list[Any]:
    """Of a study: lr, last value (of a stopped trial nan), curve."""
    kinds = {"lr": optuna.distributions.FloatDistribution(0.0, 1.0)}
    return [
        frozen_trial(n, {"lr": lr}, None, TrialState.PRUNED, curve=curve, kinds=kinds)
        if math.isnan(last)
        else frozen_trial(n, {"lr": lr}, last, curve=curve, kinds=kinds)
        for n, (lr, last, curve) in enumerate(given)
    ]


def test_a_stopped_trial_gains_nothing_from_what_was_not_reached_yet() -> None:
    """Trials 0 and 1 had nothing after round 1, when trial 3 was stopped at 50."""
    trials = _trials(
        (0.1, 40.0, [UNREACHED, 40.0]),
        (0.2, 60.0, [UNREACHED, 60.0]),
        (0.3, UNREACHED, [UNREACHED, UNREACHED]),
        (0.4, math.nan, [50.0]),
        (0.5, math.nan, [UNREACHED]),
    )
    found = standing(trials, -1.0)
    assert found is not None and found.numbers == (0, 1, 3)
    assert all(0 < -mean < 100 for mean in found.belief.mean)


def test_a_front_holds_only_what_reaches_its_target(run: Run) -> None:
    assert {number for number, _ in pareto._complete(run)} == {n for n, c in costs(run).items() if math.isfinite(c)}


def test_a_gaussian_process_is_shown_the_worst_that_was_reached(tmp_path: Path) -> None:
    known = _trials((0.1, 40.0, [40.0]), (0.2, 60.0, [60.0]), (0.3, UNREACHED, [UNREACHED]))
    made = played.begin(
        tmp_path / "run", sampler="gp", metric=(METRIC,), scheduler="none", values={"target": 0.7}
    ).experiment
    shown = [trial.values for trial in shown_to_sampler(Part(tmp_path / "run", made, space()), known)]
    assert shown == [[40.0], [60.0], [60.0]]
