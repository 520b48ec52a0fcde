"""Proposals by expected improvement per cost: the choice, that it is exact, and that it pays where a cost is marked."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from optuna.distributions import FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial
from scipy.stats import norm

from analysis.estimate.posterior import Federations, posterior
from fedtune.planning.known import known
from fedtune.record.study import StudyFile
from fedtune.trials import per_cost
from fedtune.trials.queue import Proposal, TrialQueue
from fedtune.trials.race_queue import queue_of
from fedtune.trials.samplers import STARTUP
from search_spaces.dimension import Dimension
from search_spaces.errors import UserError
from search_spaces.parameter import Parameter
from search_spaces.space import Space
from tests.fedtune.conftest import experiment, space, start
from tests.fedtune.played import FACTS
from tests.fedtune.trials.test_queue import end
from trainables.tune import Ending

KINDS = {"x": FloatDistribution(0.0, 1.0), "steps": IntDistribution(0, 100)}


def toy(cost: float | None = 0.9) -> Space:
    """x in [0, 1], and steps in [0, 100] that cost."""
    x = Parameter("x", "real", 0.5, "", low=0.0, high=1.0)
    steps = Parameter("steps", "integer", 20, "", low=0, high=1000)
    return Space("toy", "fedavg", {"x": Dimension(x, 0.0, 1.0), "steps": Dimension(steps, 0, 100, cost=cost)})


def marked() -> Space:
    """The space of the neighbours' tests, in which α is marked."""
    both = space()
    return dataclasses.replace(
        both, search={**both.search, "alpha": dataclasses.replace(both.search["alpha"], cost=0.9)}
    )


def point(x: float, steps: int, value: float | None = None) -> FrozenTrial:
    params = {"x": x, "steps": steps}
    if value is None:
        return create_trial(state=TrialState.RUNNING, params=params, distributions=KINDS)
    return create_trial(values=[value], params=params, distributions=KINDS)


# -- the choice ----------------------------------------------------------------------------------------------------

Floats = np.ndarray[Any, np.dtype[np.float64]]


def improvement(known: Floats, values: Floats, asked: Floats) -> Floats:
    """The expected improvement of the points `asked`; rows are (steps / 100, x), as the model sorts names."""
    count = len(known)
    nothing = np.zeros((count, count))
    belief = posterior(
        Federations(np.vstack([known, asked]), np.arange(count), np.ones((count, 1)), values, extra=nothing)
    )
    better = belief.mean[count:] - belief.mean[:count].max()
    against = np.eye(count + len(asked))[count:] - np.r_[np.ones(count), np.zeros(len(asked))] / count
    wider = (count - 1) / (count - 3)
    weights = np.array([part.weight for part in belief.parts])
    means = np.array([against @ part.mean for part in belief.parts])
    within = np.array([np.diag(wider * against @ part.covariance @ against.T) for part in belief.parts])
    spread = np.sqrt(weights @ (within + means**2) - (weights @ means) ** 2)
    found: Floats = better * norm.cdf(better / spread) + spread * norm.pdf(better / spread)
    return found


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_choice_is_the_largest_expected_improvement_per_cost(sign: float) -> None:
    moved = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        known, asked = rng.integers(0, 101, (9, 2)) / 100, rng.integers(0, 101, (8, 2)) / 100
        values = -((known[:, 1] - 0.4) ** 2) + 0.2 * known[:, 0] + 0.02 * rng.standard_normal(9)
        trials = [point(x, round(100 * s), sign * v) for (s, x), v in zip(known, values, strict=True)]
        drawn = [point(x, round(100 * s)) for s, x in asked]
        alone = improvement(known, values, asked)
        per_second = alone / (0.1 + 0.9 * asked[:, 0])
        assert per_cost.best(drawn, trials, sign, toy().search) is drawn[int(per_second.argmax())]
        moved += int(per_second.argmax() != alone.argmax())
    assert moved >= 3, "value alone would have chosen otherwise"


def test_a_point_that_was_tried_promises_no_more_than_is_known_of_it() -> None:
    known = [point(0.1 * i, 50, 0.1 * i) for i in range(8)]
    drawn = [point(0.0, 50), point(0.9, 50)]
    assert per_cost.best(drawn, known, 1.0, toy().search) is drawn[1]
    again = [point(0.7, 50), point(0.95, 50)]
    assert per_cost.best(again, known, 1.0, toy().search) is again[1]


def test_where_there_is_nothing_to_compare_the_first_proposal_stays() -> None:
    drawn = [point(0.5, 100), point(0.5, 0)]
    assert per_cost.best(drawn, [point(0.2, 20, 0.5)], 1.0, toy().search) is drawn[0]
    flat = [point(0.1 * i, 50, 0.5) for i in range(8)]  # nothing promises anything
    assert per_cost.best(drawn, flat, 1.0, toy().search) is drawn[0]


# -- a whole search ------------------------------------------------------------------------------------------------


def conduct(
    folder: Path, where: Space, width: int = 1, order: int = 1, every: int = 0, **changes: Any
) -> list[tuple[Any, ...]]:
    """A search with `width` trials at once; the driver is killed after every so many trials (0: never)."""
    made, live, steps = start(folder, **changes), [], 0
    queue = queue_of(folder, made, where)
    while not queue.finished:
        while len(live) < width and (proposal := queue.propose()) is not None:
            live.append(proposal)
        assert live, "nothing runs and nothing is proposed"
        done = live.pop(0 if order == 1 else -1)
        queue.finish(done.number, end(done, made.rounds))
        steps += 1
        if every and steps % every == 0:
            queue.close()
            queue, live = queue_of(folder, made, where), []
    queue.close()
    return [
        (t.number, t.state, t.params, t.values, t.intermediate_values, t.system_attrs, t.user_attrs)
        for t in StudyFile(folder).study.trials
    ]


RACE = {"budget": 108, "seeds": (0, 1, 2, 3)}


@pytest.mark.parametrize("changes", [{"scheduler": "asha"}, {"scheduler": "none"}, RACE], ids=["asha", "none", "race"])
def test_order_width_and_interruptions_change_nothing(tmp_path: Path, changes: dict[str, Any]) -> None:
    changes = {"trials": 13, **changes}
    one = conduct(tmp_path / "one", marked(), **changes)
    assert conduct(tmp_path / "two", marked(), 2, -1, **changes) == one
    assert conduct(tmp_path / "killed", marked(), 2, every=1, **changes) == one
    plain = conduct(tmp_path / "plain", space(), **changes)
    seen = STARTUP + experiment(tmp_path / "one").lag - 1
    assert [trial[2] for trial in one[:seen]] == [trial[2] for trial in plain[:seen]], "TPE draws at random there"
    assert [trial[2] for trial in one] != [trial[2] for trial in plain]


def test_under_several_conditions_configurations_are_compared(tmp_path: Path) -> None:
    omega = Parameter("omega", "real", 0.1, "", low=1e-3, high=1e4, log=True)
    vary = {"omega": Dimension(omega, 0.1, 10.0, True, grid=(10.0, 0.1))}
    changes = {"trials": 18, "scheduler": "none", "lag": 2}
    where, plain = dataclasses.replace(marked(), vary=vary), dataclasses.replace(space(), vary=vary)
    one = conduct(tmp_path / "one", where, **changes)
    assert conduct(tmp_path / "killed", where, 2, -1, every=1, **changes) == one
    assert one != conduct(tmp_path / "plain", plain, **changes)
    assert all(a[2]["alpha"] == b[2]["alpha"] for a, b in zip(one[::2], one[1::2], strict=True))


def test_a_search_without_marks_is_the_one_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither is the sampler asked more often nor is anything compared."""
    monkeypatch.setattr(per_cost, "proposed", None)
    conduct(tmp_path / "run", space(), trials=10, scheduler="none")
    with pytest.raises(TypeError):  # trial 9 is the first one that looks at six others
        conduct(tmp_path / "marked", marked(), trials=10, scheduler="none")


@pytest.mark.parametrize(
    "changes",
    [
        {"sampler": "random"},
        {"sampler": "grid", "trials": 6},
        {"sampler": "cmaes"},
        {"sampler": "nsga2"},
        pytest.param({"sampler": "gp"}, marks=pytest.mark.slow),
    ],
    ids=lambda changes: changes["sampler"],
)
def test_other_samplers_propose_as_if_nothing_were_marked(tmp_path: Path, changes: dict[str, Any]) -> None:
    changes = {"trials": 10, **changes}
    made = [conduct(tmp_path / name, where, **changes) for name, where in (("a", space()), ("b", marked()))]
    assert [trial[2] for trial in made[0]] == [trial[2] for trial in made[1]]


def test_the_user_is_told(tmp_path: Path) -> None:
    def note(**changes: Any) -> str | None:
        asked = experiment(tmp_path, **changes)
        return per_cost.note(asked.sampler, asked.metric, toy().search)

    assert note() == (
        "Proposals are compared by what they promise per second of cost, which depends on steps (0.9 of a round)."
    )
    assert note(sampler="gp") == (
        "The space marks the cost of steps (0.9 of a round); costs are not compared by the sampler gp, only by tpe for "
        "one metric."
    )
    assert note(metric=("val_global_accuracy", "bytes_up")) == (
        "The space marks the cost of steps (0.9 of a round); costs are not compared with 2 metrics, only by tpe for "
        "one metric."
    )
    assert per_cost.note("tpe", ["global_accuracy"], toy(None).search) is None
    assert note() in known(experiment(tmp_path), toy(), FACTS).notes
    assert not any("cost" in told for told in known(experiment(tmp_path), toy(None), FACTS).notes)


def test_marks_that_were_edited_into_nonsense_are_told(tmp_path: Path) -> None:
    data = json.loads(json.dumps(toy().to_json()))
    data["search"][1]["cost"] = 1.0
    with pytest.raises(UserError, match=r"cost of steps must be below 1, .* \(space.json\)"):
        TrialQueue(tmp_path / "run", start(tmp_path / "run"), Space.from_json(data))


# -- what it is for ------------------------------------------------------------------------------------------------


def work_until(folder: Path, where: Space, seed: int, target: float) -> float:
    """What a search spends until a configuration is as good as `target`, in rounds of the dearest one. The value has
    its peak in x and hardly depends on the steps, which are nine tenths of a round's cost."""

    def value(proposal: Proposal) -> float:
        x, steps = float(proposal.values["x"]), float(proposal.values["steps"])
        return -((x - 0.37) ** 2) + 1e-4 * steps / 100

    made = start(folder, seed=seed, trials=80, scheduler="none", rounds=1, lag=1)
    queue, spent, best = TrialQueue(folder, made, where), 0.0, -math.inf
    while best < target and (proposal := queue.propose()) is not None:
        best = max(best, value(proposal))
        spent += 0.1 + 0.9 * float(proposal.values["steps"]) / 100
        queue.finish(proposal.number, Ending("completed", 1, None, {1: (value(proposal),)}))
    queue.close()
    assert best >= target
    return spent


def test_the_same_value_takes_less_work_where_the_cost_is_marked(tmp_path: Path) -> None:
    spent = {
        cost: [work_until(tmp_path / f"{cost}-{seed}", toy(cost), seed, -1e-5) for seed in range(4)]
        for cost in (None, 1e-9, 0.9)
    }
    assert sum(spent[0.9]) < 0.8 * sum(spent[None]), spent
    # A mark of next to nothing compares the same candidates by expected improvement alone.
    assert sum(spent[0.9]) < 0.9 * sum(spent[1e-9]), spent
