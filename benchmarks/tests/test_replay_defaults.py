"""The replay of what the defaults of `fedtune search` could be: one change each, scored and compared as it says."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from analysis.estimate import standing
from benchmarks.replay import defaults
from benchmarks.replay.defaults import DECIDING, PRESENT, REPORTING, VARIANTS
from benchmarks.replay.measures import Judged
from benchmarks.replay.searcher import Floats, Setting
from benchmarks.replay.searchers.present import Present
from benchmarks.replay.searchers.racing import Racing
from benchmarks.replay.searchers.thawing import Thawing
from benchmarks.replay.simulator import Simulation
from benchmarks.tests.test_replay import Known, setting
from fedtune.decisions import expected_improvement
from fedtune.decisions.early_stopping import REDUCTION
from fedtune.machine import resources
from fedtune.record.experiment import Experiment
from search_spaces.dimension import Dimension
from search_spaces.parameter import Parameter, Value
from search_spaces.space import Space

if TYPE_CHECKING:
    pass


def made(variant: str) -> Any:
    return VARIANTS[variant](setting(Known(0)))


def test_a_variant_is_the_present_search_but_for_one_default() -> None:
    """What it changes is what its name says, by the names of the experiment's fields."""
    present: Experiment = made(PRESENT).experiment
    assert present.reduction_factor == REDUCTION
    assert (present.order, present.lag, present.early) == ("fixed", resources.lag(1), resources.early(1))
    for variant in set(VARIANTS) - {PRESENT, "--race", "stopped trials may go on"}:
        searcher = made(variant)
        changed = {
            f.name: getattr(searcher.experiment, f.name)
            for f in dataclasses.fields(Experiment)
            if getattr(searcher.experiment, f.name) != getattr(present, f.name)
        }
        startup = re.fullmatch(r"(\d+) start-up trials", variant)
        if startup:
            assert not changed and searcher.startup == int(startup[1]) != expected_improvement.FEWEST
        elif variant == "--seeds 3 --no-race":
            assert changed == {"seeds": (0, 1, 2)} and not searcher.experiment.races
        else:
            option, value = variant.removeprefix("--").split()
            assert {name: str(v) for name, v in changed.items()} == {option.replace("-", "_"): value}
    assert isinstance(made("--race"), Racing) and isinstance(made(PRESENT), Present)


#: Rounds in which trials can be stopped early.
LONG = 12
#: A space in which no configuration is proposed twice.
SMOOTH = Space("smooth", "toy", {"x": Dimension(Parameter("x", "real", 0.0, "", low=0, high=9), 0.0, 9.0)})


class Longer(Known):
    """The mean rises by a tenth per unit of x; the noise of a round is its own."""

    def truth_curve(self, values: Mapping[str, Value]) -> Floats:
        return 0.1 * float(values["x"]) * np.arange(1, LONG + 1) / LONG

    def curve(self, values: Mapping[str, Value], seed: int) -> Floats:
        rng = np.random.default_rng([self.repetition, seed, int(1e9 * (float(values["x"]) + 1))])
        found: Floats = self.truth_curve(values) + 0.2 * rng.standard_normal(LONG)
        return found


def longer(repetition: int) -> tuple[Longer, Setting]:
    episode = Longer(repetition)
    return episode, dataclasses.replace(setting(episode, repetition, space=SMOOTH), rounds=LONG)


def test_stopped_trials_go_on_from_where_they_stopped_and_may_win() -> None:
    """Each once, for the rounds that are left, and only where it promises more per round than a new configuration."""
    episode, given = longer(0)
    searcher = Thawing(given)
    search = Simulation(episode, searcher, slots=1, budgets=[30 * LONG])
    search.run()
    as_stopped = {trial.number: trial for trial in searcher.queue.trials()}
    ended = {trial.number: trial for trial in searcher.trials()}
    *whole, last = searcher.gone_on
    assert len(whole) >= 3
    for number in whole if ended[last].state.name == "PRUNED" else (*whole, last):  # the last one may be under way
        stopped, trial = as_stopped[number], ended[number]
        assert stopped.state.name == "PRUNED" and trial.state.name == "COMPLETE"
        curve = episode.curve(searcher.queue.parts[0].space.values(trial.params), 0)
        assert trial.values == [curve[-1]] and trial.user_attrs["rounds"] == LONG > stopped.user_attrs["rounds"]
    rounds = sum(int(trial.user_attrs["rounds"]) for trial in ended.values() if trial.state.is_finished())
    assert 0 <= search.spent - rounds < LONG, "nobody pays for a round twice; one trial runs"
    verdict = searcher.winner()
    found = standing([trial for trial in ended.values() if trial.state.is_finished()], 1.0)
    assert verdict is not None and found is not None
    assert verdict.values == searcher.queue.parts[0].space.values(ended[found.ranked[0]].params)


def judged(*regrets: float) -> list[Judged]:
    return [Judged(0, regret, 0.0, 0.0, None, 0.0) for regret in regrets]


def test_a_score_is_the_part_of_a_blind_choices_regret() -> None:
    """Over both repetitions a blind choice has a mean regret of 0.2."""
    episodes = [SimpleNamespace(best=0.9, blind=0.6), SimpleNamespace(best=0.8, blind=0.7)]
    given: Any = SimpleNamespace(episode=lambda repetition: episodes[repetition])
    scores = defaults._scores(given, [judged(0.2, 0.1), judged(0.1, 0.0)])
    assert scores == pytest.approx([0.15 / 0.2, 0.05 / 0.2])


def test_differences_are_taken_within_repetitions_and_averaged_over_tables() -> None:
    a, b, c = DECIDING[0], DECIDING[1], REPORTING[0]
    scores = {
        (a, PRESENT): np.array([0.5, 0.9]),
        (a, "x"): np.array([0.4, 0.8]),
        (b, PRESENT): np.array([0.2, 0.2]),
        (b, "x"): np.array([0.5, 0.3]),
        (c, PRESENT): np.array([0.3, 0.5]),
    }
    found = defaults._summary(scores, "x", [a, b, c])
    assert found["difference"][a] == {"value": -0.1, "low": -0.1, "high": -0.1, "n": 2}
    assert found["difference"][b]["value"] == pytest.approx(0.2)
    assert found["deciding"]["value"] == pytest.approx(0.05) and found["reporting"] is None
    assert (found["deciding"]["low"], found["deciding"]["high"]) == (0.0, 0.1)
    assert found["score"][a]["value"] == pytest.approx(0.6) and c not in found["score"]
