"""Every configuration under every condition: one fixed sequence of trials, and samplers that see configurations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState, create_trial

from fedtune.decisions.conditions import Crossed, _places, _standing, merged
from fedtune.decisions.history import Part
from tests.fedtune.conftest import experiment, frozen, varied
from tests.fedtune.played import begin, play

OMEGAS = (10.0, 1.0, 0.1)


def searched(folder: Path, width: int = 1, sessions: int = 1, **changes: Any) -> list[dict[str, Any]]:
    begin(folder, where=varied(*OMEGAS), **changes)
    play(folder, width, sessions)
    return frozen(folder)


def test_a_configuration_is_run_under_every_condition_before_the_next(tmp_path: Path) -> None:
    trials = searched(tmp_path / "a", sampler="tpe", scheduler="none", trials=30)
    assert [t["params"]["omega"] for t in trials] == [10.0, 1.0, 0.1] * 10
    configurations = [(t["params"]["alpha"], t["params"]["lambda"]) for t in trials]
    blocks = [configurations[n : n + 3] for n in range(0, 30, 3)]
    assert all(len(set(block)) == 1 for block in blocks) and len({block[0] for block in blocks}) == 10
    assert [t["attributes"].get("from") for t in trials[:4]] == ["the paper's values"] * 3 + [None]


@pytest.mark.parametrize(
    ("sampler", "scheduler"),
    [
        ("tpe", "asha"),
        ("random", "asha"),
        ("gp", "none"),
        ("tpe", "median"),
        ("nsga2", "asha"),
        ("grid", "asha"),
    ],
)
def test_whatever_runs_side_by_side_and_however_often_it_is_interrupted(
    tmp_path: Path, sampler: str, scheduler: str
) -> None:
    """A search is one fixed sequence of trials."""
    asked = {"sampler": sampler, "scheduler": scheduler, "grace": 1, "trials": 18}
    alone = searched(tmp_path / "alone", **asked)
    beside = searched(tmp_path / "beside", width=4, sessions=9, **asked)
    assert beside == alone
    if scheduler != "none":
        assert any(t["state"] == "PRUNED" for t in alone)


def test_a_grid_is_crossed(tmp_path: Path) -> None:
    trials = searched(tmp_path / "grid", sampler="grid", scheduler="none", trials=18)
    found = [(t["params"]["alpha"], t["params"]["lambda"], t["params"]["omega"]) for t in trials]
    assert found == [(a, b, w) for a in (0.0, 1.0, 2.0) for b in (0.0, 0.5) for w in (10.0, 1.0, 0.1)]


def test_trials_are_stopped_by_those_under_their_own_condition(tmp_path: Path) -> None:
    """The values of one condition are far above those of another: a rule that mixed them would stop all of these."""

    def easier(values: dict[str, Any]) -> float:
        return 0.5 if values["omega"] == 10.0 else 0.0

    asked = {"sampler": "random", "scheduler": "asha", "trials": 30}
    plain, lifted = searched(tmp_path / "plain", **asked), searched_with(tmp_path / "lifted", easier, **asked)
    assert [t["state"] for t in lifted] == [t["state"] for t in plain]
    assert {t["state"] for t in plain} == {"COMPLETE", "PRUNED"}


def searched_with(folder: Path, lift: Any, **changes: Any) -> list[dict[str, Any]]:
    from tests.fedtune import played

    class Lifted(played.Fake):
        def step(self) -> list[dict[str, Any]]:
            return [
                row | {k: v + lift(self.values) for k, v in row.items() if k.endswith("accuracy")}
                for row in super().step()
            ]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(played, "Fake", Lifted)
        return searched(folder, **changes)


def trial(
    alpha: float, omega: float, value: float | None, state: str = "COMPLETE", last: dict[int, float] | None = None
) -> Any:
    return create_trial(
        state=TrialState[state],
        value=value,
        params={"alpha": alpha, "omega": omega},
        distributions={"alpha": FloatDistribution(0, 2), "omega": FloatDistribution(0.1, 10, log=True)},
        intermediate_values=last or {},
    )


def shown(tmp_path: Path, known: list[Any], numbers: Sequence[int] = (), **changes: Any) -> list[Any]:
    """`known` as a sampler sees them, where they are the first trials, or those with the `numbers`."""
    for number, one in zip(numbers or range(len(known)), known, strict=True):
        one.number = number
    made = experiment(tmp_path, **changes)
    part = Part(tmp_path, made, varied(10.0, 0.1))
    return list(merged(known, part.crossed, made, {"omega"}))


def test_a_sampler_sees_the_mean_place_of_a_configuration(tmp_path: Path) -> None:
    """By hand: under ω = 10 the values 0.9, 0.8, 0.7 have the places 1, ½, 0; under 0.1 the values 0.1, 0.3, 0.2 have
    0, 1, ½. The differences under one condition are ten times those under the other, and count no more."""
    known = [
        trial(a, w, v)
        for a, w, v in [(0, 10, 0.9), (0, 0.1, 0.1), (1, 10, 0.8), (1, 0.1, 0.3), (2, 10, 0.7), (2, 0.1, 0.2)]
    ]
    found = shown(tmp_path, known)
    assert [t.params for t in found] == [{"alpha": 0.0}, {"alpha": 1.0}, {"alpha": 2.0}]
    assert [t.value for t in found] == [0.5, 0.75, 0.25]
    assert [t.value for t in shown(tmp_path, known[:5])] == [0.5, 0.5], "the third has not ended under all conditions"
    falling = shown(tmp_path, known, metric=("train_loss",))
    assert [t.value for t in falling] == [-0.5, -0.25, -0.75], "less is better: 0.9 and 0.1 are the worst and the best"


def test_a_configuration_under_whose_conditions_trials_still_run_is_not_shown(tmp_path: Path) -> None:
    """Trials that go by arrival end in any order: of the second configuration only one has. By hand: under ω = 10 the
    values 0.9 and 0.7 have the places 1 and 0; under 0.1 the values 0.1 and 0.2 have 0 and 1."""
    known = [trial(a, w, v) for a, w, v in [(0, 10, 0.9), (0, 0.1, 0.1), (1, 0.1, 0.3), (2, 10, 0.7), (2, 0.1, 0.2)]]
    found = shown(tmp_path, known, numbers=[0, 1, 3, 4, 5])
    assert [(t.params["alpha"], t.value) for t in found] == [(0.0, 0.5), (2.0, 0.5)]
    assert [t.params["alpha"] for t in shown(tmp_path, known[2:], numbers=[3, 4, 5])] == [2.0]


def test_a_stopped_configuration_is_below_those_that_ran_further_and_a_failed_one_below_all(tmp_path: Path) -> None:
    known = [
        trial(0, 10, None, "PRUNED", {1: 0.2, 3: 0.99}),
        trial(0, 0.1, 0.5),
        trial(1, 10, 0.1),
        trial(1, 0.1, 0.5),
        trial(2, 10, None, "FAIL"),
        trial(2, 0.1, 0.4),
    ]
    # ω = 10: places ½, 1, 0. ω = 0.1: the first two are equal, ¾ each, the third 0.
    assert [t.value for t in shown(tmp_path, known)] == [0.625, 0.875, 0.0]
    assert all(t.state == TrialState.COMPLETE for t in shown(tmp_path, known))


def test_with_two_metrics_each_has_its_places_and_a_stopped_configuration_is_not_shown(tmp_path: Path) -> None:
    """By hand, the first metric rising and the second falling, of the two configurations that ended and of the one that
    was stopped under its second condition; what a sampler keeps with a proposal stands in its first trial."""
    ended = [((0.9, 2.0), (0.1, 2.0)), ((0.8, 1.0), (0.3, 1.0))]
    stopped = create_trial(state=TrialState.PRUNED, params={"alpha": 1.0}, distributions=ALPHA)
    known = [both(0.0, *ended[0][0], kept=3), both(0.0, *ended[0][1])]
    known += [both(1.0, 0.95, 9.0), stopped]
    known += [both(2.0, *ended[1][0], kept=5), both(2.0, *ended[1][1])]
    found = shown(tmp_path, known, metric=("val_global_accuracy", "train_loss"))
    assert [t.params["alpha"] for t in found] == [0.0, 2.0]
    # Accuracy under ω = 10: ½ and 0, as the stopped one has 0.95 there; under 0.1: ½ and 1, as it did not end.
    # Loss: 2.0 and 1.0, and 9.0 for the stopped one under 10, nothing under 0.1.
    assert [t.values for t in found] == [[0.5, -0.5], [0.5, -1.0]]
    assert [t.system_attrs for t in found] == [{"kept": 3}, {"kept": 5}]


ALPHA = {"alpha": FloatDistribution(0, 2)}


def both(alpha: float, accuracy: float, loss: float, **kept: int) -> Any:
    return create_trial(values=[accuracy, loss], params={"alpha": alpha}, distributions=ALPHA, system_attrs=kept)


def test_a_tpe_search_comes_near_what_is_good_under_all_conditions(tmp_path: Path) -> None:
    """The proposals after the random ones are better, by the mean place, than the random ones."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    trials = searched(tmp_path / "tpe", sampler="tpe", scheduler="none", trials=36)
    values = [sum(t["values"][0] for t in trials[n : n + 3]) for n in range(0, 36, 3)]
    assert sum(values[6:]) / 6 > sum(values[:6]) / 6


def test_a_grid_takes_the_results_of_an_earlier_one(tmp_path: Path) -> None:
    """Cells hold their conditions, so a result is taken where the condition is the same."""
    begin(tmp_path / "first", where=varied(10.0, 0.1), sampler="grid", trials=12)
    earlier = play(tmp_path / "first")
    made = begin(tmp_path / "second", earlier, where=varied(*OMEGAS), sampler="grid", scheduler="none", trials=18)
    done = [trial for trial in earlier.frozen if trial.state.name == "COMPLETE"]
    assert made.experiment.taken == len(done) > 0 and made.experiment.trials == 18
    play(tmp_path / "second")
    trials = [trial["params"] for trial in frozen(tmp_path / "second")]
    cells = varied(*OMEGAS).grid_points()
    assert len(trials) == 18 and all(cell in trials for cell in cells)
    assert trials[: len(done)] == [trial.params for trial in done]


def test_the_place_of_a_trial_among_those_under_its_condition() -> None:
    """How far it ran comes first, then its value; equal ones share the better places."""
    end = float("inf")
    assert _places([(end, 3.0), (end, 1.0), (end, 3.0), (2.0, 9.0)]) == pytest.approx([2.5 / 3, 1 / 3, 2.5 / 3, 0.0])
    assert _places([(end, 1.0), (end, 2.0)]) == [0.0, 1.0]
    assert _places([(end, 1.0)]) == [0.5] and _places([]) == []


@pytest.mark.parametrize(
    ("state", "values", "measured", "standing"),
    [
        (TrialState.COMPLETE, [0.3], {1: 0.9}, (float("inf"), -0.3)),
        (TrialState.PRUNED, None, {1: 0.1, 4: 0.25}, (4.0, -0.25)),
        (TrialState.PRUNED, None, {}, (float("-inf"), 0.0)),
        (TrialState.FAIL, None, {1: 0.1}, (float("-inf"), 0.0)),
    ],
)
def test_what_trials_under_one_condition_are_ordered_by(
    state: TrialState, values: Any, measured: dict[int, float], standing: tuple[float, float]
) -> None:
    trial = create_trial(state=state, values=values, intermediate_values=measured)
    assert _standing(trial, -1, 0) == standing


def test_places_in_the_sequence() -> None:
    crossed = Crossed(({"omega": 10.0}, {"omega": 1.0}, {"omega": 0.1}), 3)
    assert [crossed.place(n) for n in range(7)] == [0, 0, 0, 1, 1, 1, 2]
    assert [crossed.first(n) for n in range(7)] == [0, 0, 0, 3, 3, 3, 6]
    assert [crossed.condition(n)["omega"] for n in range(4)] == [10.0, 1.0, 0.1, 10.0]
