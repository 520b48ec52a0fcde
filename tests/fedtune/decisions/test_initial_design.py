"""The first trials of a search end at the first rung, and the best of them go on, whatever ran side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import FrozenTrial, TrialState

from analysis.estimate import configuration, estimate, sentences, standing
from analysis.runs.race import first_of, is_repeated
from fedtune.decisions import initial_design
from fedtune.decisions.confirmation import confirms
from fedtune.decisions.early_stopping import Median, default_grace
from fedtune.decisions.initial_design import First, FirstSeeds, compared, last_round, size, without
from fedtune.decisions.sampling import spread
from fedtune.record.experiment import search_seeds
from search_spaces import run_folder
from tests.fedtune.conftest import experiment, space
from tests.fedtune.decisions.test_race_proposals import content, raced
from tests.trials import frozen_trial

#: Of a search of one seed with 16 trials six are the design; with a confirmation the last three are further seeds.
SEARCH: dict[str, Any] = {
    "sampler": "ei",
    "budget": 0,
    "seeds": search_seeds(2, 1),
    "trials": 16,
    "initial": 6,
    "grace": 3,
    "lag": 1,
}
CONFIRM = {"confirm": 3}
PAPER: dict[str, Any] = {"first": ({"from": run_folder.PAPER, "values": {"alpha": 0.1, "lambda": 0.5}},)}
RUNS = pytest.mark.parametrize(
    "changes", [{}, CONFIRM, PAPER, CONFIRM | PAPER], ids=["to the end", "confirmed", "paper", "paper, confirmed"]
)


@pytest.mark.parametrize(
    ("trials", "rounds", "expected"),
    [(1, 12, 0), (8, 12, 0), (9, 12, 3), (20, 12, 6), (30, 12, 10), (1000, 12, 10), (1000, 8, 8), (1000, 4, 0)],
)
def test_a_third_of_a_search_and_two_federations_at_most(trials: int, rounds: int, expected: int) -> None:
    """Of 8 rounds two federations have 16, for 8 trials of two rounds; of 4 rounds there is no rung."""
    assert size(trials, rounds, default_grace(rounds, 3), 3) == expected


def test_a_trial_of_the_design_ends_before_the_first_rung_whatever_it_measures() -> None:
    rule = First(last_round(3))
    assert [rule.stops(round_, {round_: (9.0,)}) for round_ in (1, 2, 3)] == [False, True, True]
    assert [rule.may_stop(round_) for round_ in (1, 2, 3)] == [False, True, True]


@RUNS
def test_the_best_of_the_design_runs_to_its_end_on_the_same_seed(tmp_path: Path, changes: dict[str, Any]) -> None:
    _, trials = raced(tmp_path / "run", **SEARCH | changes)
    design = trials[:6]
    assert [(t.state, t.user_attrs["rounds"]) for t in design] == [(TrialState.PRUNED, 2)] * 6
    first = max(design, key=lambda t: t.intermediate_values[2])
    whole = trials[6]
    assert (first_of(whole), whole.params, whole.state) == (first.number, first.params, TrialState.COMPLETE)
    assert whole.user_attrs.get("seed") == first.user_attrs.get("seed")
    assert [whole.intermediate_values[r] for r in (1, 2)] == [first.intermediate_values[r] for r in (1, 2)]
    papers = [len(trials) - 1 - changes.get("confirm", 0)] if "first" in changes and first.number else []
    assert [t.number for t in trials if is_repeated(t, trials)] == [6, *papers]
    assert all(first_of(trials[number]) == 0 for number in papers)
    others = [t for t in trials if first_of(t) is None]
    assert len({configuration(t) for t in others}) == len(others)  # nothing else is tried twice


@RUNS
def test_order_width_and_restarts_change_nothing(tmp_path: Path, changes: dict[str, Any]) -> None:
    asked = SEARCH | changes | {"lag": 4}
    one = content(raced(tmp_path / "one", **asked)[1])
    assert content(raced(tmp_path / "four", 4, -1, **asked)[1]) == one
    assert content(raced(tmp_path / "killed", 3, every=4, **asked)[1]) == one


def test_a_confirmation_goes_on_with_a_seed_that_the_configuration_has_not_had(tmp_path: Path) -> None:
    made, trials = raced(tmp_path / "run", **SEARCH | CONFIRM, noise=0.0)
    assert sum(map(confirms, trials)) == 3
    had: dict[object, list[int]] = {}
    for trial in trials:
        if not is_repeated(trial, trials):
            had.setdefault(configuration(trial), []).append(trial.user_attrs["seed"])
    assert all(len(set(seeds)) == len(seeds) for seeds in had.values())
    assert {seeds[0] for seeds in had.values()} == {made.seeds[0]}
    confirmed = [t for t in trials if confirms(t)]
    assert all(t.user_attrs["seed"] == made.seeds[0] + 1 for t in confirmed[:2])  # the next one, not one left out


def trial(number: int, value: float | None, state: TrialState = TrialState.PRUNED, **attributes: Any) -> FrozenTrial:
    """A trial of the design after two rounds; None: nothing was measured."""
    params, curve = {"alpha": float(attributes.get("of", number))}, () if value is None else (0.0, value)
    last = value if state == TrialState.COMPLETE else None
    return frozen_trial(number, params, last, state, curve=curve, **attributes)


def going_on(begun: Sequence[FrozenTrial], known: Sequence[FrozenTrial], made: Any) -> int | None:
    gone = [first for one in begun if is_repeated(one, begun) and (first := first_of(one)) is not None]
    return initial_design.going_on(begun, {one.number for one in known}, made, gone)


def test_who_goes_on(tmp_path: Path) -> None:
    made = experiment(tmp_path / "run", **SEARCH | {"initial": 5})
    design = [
        trial(0, 0.4),
        trial(1, 0.9, TrialState.FAIL),  # it diverged
        trial(2, float("nan")),
        trial(3, 0.4),
        trial(4, None),
    ]
    assert going_on(design, design, made) == 0  # of equal ones the first
    assert going_on([*design, trial(5, 0.5, TrialState.RUNNING, of=0)], design, made) is None  # only one goes on
    less = dataclasses.replace(made, metric=("val_global_loss",))
    rising = [trial(n, n / 10) for n in range(5)]
    assert (going_on(rising, rising, made), going_on(rising, rising, less)) == (4, 0)
    # Not before all of the design have ended, nor where there is no design.
    assert going_on(design, design[:4], made) is None
    assert going_on(design[:4], design[:4], made) is None
    assert going_on(design, design, without(made)) is None


def test_until_two_are_whole_trials_are_compared_after_the_last_round_that_all_have() -> None:
    """The one that went on has 0.8 at its end and 0.4 after round 2, which is what the others are compared with."""
    design = [trial(n, n / 10) for n in range(4)]
    diverged = trial(4, 0.9, TrialState.FAIL)
    whole = trial(5, 0.8, TrialState.COMPLETE, of=3)
    whole.intermediate_values = {1: 0.0, 2: 0.4, 3: 0.6, 12: 0.8}
    found = compared([*design, diverged, whole])
    assert [t.number for t in found] == [0, 1, 2, 3, 4, 5]
    assert [t.state.name for t in found] == ["COMPLETE"] * 4 + ["FAIL", "COMPLETE"]
    assert [found[n].value for n in (0, 1, 2, 3, 5)] == [0.0, 0.1, 0.2, 0.3, 0.4]
    assert max(found[5].intermediate_values) == 2
    few = design[:3]
    assert compared(few) is few  # too few to compare
    two = [*design, whole, trial(6, 0.5, TrialState.COMPLETE)]
    assert compared(two) is two


def test_the_design_ends_with_what_the_sampler_proposes(tmp_path: Path) -> None:
    """Its sixth trial is no point of the sequence that fills the space, as five have ended."""
    made, trials = raced(tmp_path / "run", **SEARCH)
    points = [space().params(spread(space(), made.seed, number)) for number in range(6)]
    assert [trials[n].params == points[n] for n in range(1, 6)] == [True, True, True, True, False]


def test_later_trials_are_compared_with_those_that_went_on_once() -> None:
    """Means over two rounds: 0, 0.05, …, 0.2 of five trials of the design. Of the last one's configuration 0.45 counts
    in place of 0.2 once it has run to its end, and a further seed of it never does."""
    design = [trial(n, n / 10) for n in range(5)]
    again = trial(5, 0.9, TrialState.COMPLETE, of=4)
    further = trial(6, 0.8, TrialState.COMPLETE, of=4, seed=8)
    begun = dict(enumerate([*design, again, further, trial(7, 0.6)]))
    for one in begun.values():
        one.user_attrs["rounds"] = 2
    given = (), (1,), "median", 3, 2, 3
    found = FirstSeeds(begun, *given)
    medians = []
    for one in begun.values():
        found.add(one)
        rule = found.rule(one)
        medians.append(rule.medians.get(2) if isinstance(rule, Median) else None)
    assert medians == [None, None, *map(pytest.approx, [0.05, 0.075, 0.1, 0.1, 0.1, (0.1 + 0.15) / 2])]
    without_it = FirstSeeds(begun, *given)
    for number in (0, 3, 4, 5, 6):
        without_it.add(begun[number])
    assert without_it.rule(again) == Median({2: pytest.approx(0.15)})


def test_what_was_gained_is_told_from_the_papers_values_as_they_went_on() -> None:
    design = [trial(n, n / 10, **({"from": run_folder.PAPER} if n == 3 else {})) for n in range(5)]
    again = [trial(5, 0.8, TrialState.COMPLETE, of=4), trial(6, 0.3, TrialState.COMPLETE, of=3)]
    found = standing([*design, *again], 1.0)
    assert found is not None
    said = estimate(found, paper=3)
    assert (said.trial, said.paper) == (5, 6)
    assert said.gain is not None and said.gain > 0
    # Values that may not win, as they miss a requirement, are compared all the same.
    seeds = tuple(0 if place == found.place[3] else many for place, many in enumerate(found.seeds))
    assert estimate(dataclasses.replace(found, seeds=seeds), paper=3).gain == said.gain
    stopped = estimate(found, paper=0)
    assert (stopped.paper, stopped.gain, stopped.better) == (0, None, False)
    assert sentences(stopped, str)[2] == (
        "What it gains over the paper's values is not known: trial 0, which has them, ended early."
    )


@pytest.mark.parametrize(("trials", "confirm", "number"), [(16, 0, 15), (20, 4, 15), (200, 40, 30)])
def test_the_papers_values_run_to_their_end_before_the_confirmation(
    tmp_path: Path, trials: int, confirm: int, number: int
) -> None:
    made = experiment(tmp_path / "run", **SEARCH | {"trials": trials, "confirm": confirm, "initial": 5})
    design = [trial(n, n / 10, **({"from": run_folder.PAPER} if n == 0 else {})) for n in range(5)]
    whole = trial(5, 0.8, TrialState.COMPLETE, of=4)
    later = [trial(n, 0.1) for n in range(6, number)]
    before = [*design, whole, *later]
    assert [going_on(before[:n], design, made) for n in range(6, number + 1)] == [None] * (number - 6) + [0]
    # Where the best is found that late it goes on first.
    slow = [*design, *(trial(n, 0.1) for n in range(5, number))]
    assert going_on(slow, slow, made) == 4
    # Once; and not where something went wrong, they were the best, or they are no part of the search.
    assert going_on([*before, trial(number, 0.3, TrialState.RUNNING, of=0)], before, made) is None
    for other in (trial(0, 0.0, TrialState.FAIL, **{"from": run_folder.PAPER}), trial(0, 0.0)):
        assert going_on([other, *before[1:]], [other, *before[1:]], made) is None
    best = [*design, trial(5, 0.8, TrialState.COMPLETE, of=0), *later]
    assert going_on(best, best, made) is None


def test_without_it_all_else_is_the_same(tmp_path: Path) -> None:
    made = experiment(tmp_path / "run", **SEARCH)
    assert without(made) == dataclasses.replace(made, initial=0)
