"""Proposals by expected improvement: the choice, that it is exact, and that it pays, also where a cost is marked."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from optuna.distributions import FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState
from scipy.stats import norm

from analysis.estimate.posterior import Federations, posterior
from analysis.estimate.winner import MOST
from fedtune.decisions import expected_improvement
from fedtune.decisions.expected_improvement import FEWEST, Told, Tried, _drawn
from fedtune.decisions.sampling import generator, spread, uniform
from fedtune.execution.queue import Proposal
from fedtune.planning.warm_start import known
from search_spaces.dimension import Dimension
from search_spaces.errors import UserError
from search_spaces.metrics import UNREACHED
from search_spaces.parameter import Parameter
from search_spaces.space import Space
from tests.fedtune.conftest import experiment, space, start, varied
from tests.fedtune.execution.test_queue import conduct
from tests.fedtune.played import FACTS
from tests.fedtune.queues import opened
from tests.trials import frozen_trial
from trainables.worker.job import Ending

KINDS = {"steps": IntDistribution(0, 100), "x": FloatDistribution(0.0, 1.0)}


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
    return frozen_trial(0, params(x, steps), value, kinds=KINDS)


def tried(had: Iterable[dict[str, Any]]) -> Tried:
    return Tried.of(SimpleNamespace(params=params) for params in had)  # type: ignore[misc]


def _told(known: Iterable[FrozenTrial], sign: float) -> list[FrozenTrial]:
    return Told.of(known, sign).trials()


def best(draws: Sequence[Any], known: Iterable[FrozenTrial], sign: float, *given: Any) -> list[Any]:
    return expected_improvement.best(draws, Told.of(known, sign), *given)


def proposed(where: Space, known: Iterable[FrozenTrial], had: Any, sign: float, *given: Any) -> list[FrozenTrial]:
    return expected_improvement.proposed(where, Told.of(known, sign), tried(had), *given)


# -- the choice ----------------------------------------------------------------------------------------------------

Floats = np.ndarray[Any, np.dtype[np.float64]]


def promised(known: Floats, values: Floats, asked: Floats) -> Floats:
    """The expected improvement of the points `asked`; rows are (steps / 100, x), as the model sorts names."""
    count = len(known)
    nothing = np.zeros((count, count))
    belief = posterior(
        Federations(
            np.vstack([known, asked]), np.arange(count), np.ones((count, 1)), values, extra=nothing, widths=(1, 1)
        )
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


def params(x: float, steps: int) -> dict[str, Any]:
    return {"x": x, "steps": steps}


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_choice_is_the_largest_expected_improvement_per_cost(sign: float) -> None:
    moved = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        known, asked = rng.integers(0, 101, (9, 2)) / 100, rng.integers(0, 101, (8, 2)) / 100
        values = -((known[:, 1] - 0.4) ** 2) + 0.2 * known[:, 0] + 0.02 * rng.standard_normal(9)
        trials = [point(x, round(100 * s), sign * v) for (s, x), v in zip(known, values, strict=True)]
        draws = [params(x, round(100 * s)) for s, x in asked]
        alone = promised(known, values, asked)
        per_second = alone / (0.1 + 0.9 * asked[:, 0])
        assert best(draws, trials, sign, toy())[0] is draws[int(per_second.argmax())]
        assert best(draws, trials, sign, toy(None))[0] is draws[int(alone.argmax())]
        moved += int(per_second.argmax() != alone.argmax())
    assert moved >= 3, "value alone would have chosen otherwise"


def test_where_there_is_nothing_to_compare_the_first_draw_stays() -> None:
    draws = [params(0.5, 100), params(0.5, 0)]
    assert best(draws, [point(0.2, 20, 0.5)], 1.0, toy())[0] is draws[0]
    flat = [point(0.1 * i, 50, 0.5) for i in range(8)]  # nothing promises anything
    assert best(draws, flat, 1.0, toy())[0] is draws[0]
    assert best(draws[1:], flat, 1.0, toy())[0] is draws[1]


def failed(x: float, steps: int) -> FrozenTrial:
    return frozen_trial(0, params(x, steps), state=TrialState.FAIL, kinds=KINDS)


def missed(x: float, steps: int) -> FrozenTrial:
    """It ran to its end without its target."""
    return point(x, steps, UNREACHED)


def not_yet(x: float, steps: int) -> FrozenTrial:
    """It was stopped before its target."""
    return late(x, steps, UNREACHED)


def late(x: float, steps: int, value: float) -> FrozenTrial:
    """A trial that was stopped early with this last value."""
    return frozen_trial(0, params(x, steps), state=TrialState.PRUNED, curve={1: 0.0, 3: value}, kinds=KINDS)


@pytest.mark.parametrize(("sign", "bad"), [(1.0, failed), (-1.0, failed), (-1.0, missed), (-1.0, not_yet)])
def test_what_failed_or_missed_its_target_promises_nothing_beside_it(sign: float, bad: Any) -> None:
    """Larger x is better, and beyond 0.6 nothing runs: a draw between those that failed is not worth a trial."""
    known = [point(0.1 * i, 50, sign * 0.1 * i) for i in range(7)]
    failures = [bad(x, 50) for x in (0.7, 0.8, 0.9, 1.0)]
    draws = [params(0.85, 50), params(0.55, 50)]
    assert best(draws, known, sign, toy(None))[0] is draws[0]
    assert best(draws, [*known, *failures], sign, toy(None))[0] is draws[1]
    for number, trial in enumerate(failures):
        trial.number = 7 + number
    told = _told([*known, *failures], sign)
    assert [t.number for t in told[7:]] == [7, 8, 9, 10]
    assert [t.values for t in told] == [[sign * 0.1 * i] for i in range(7)] + [[0.0]] * 4
    assert [t.params for t in told] == [t.params for t in (*known, *failures)]
    stopped = late(0.95, 50, -sign * 0.3)
    stopped.number = 11
    told = _told([*known, *failures, stopped], sign)
    assert [t.values for t in told[7:]] == [[-sign * 0.3]] * 4 + [None], "the worst is that of one that was stopped"


def test_nothing_but_failures_is_worth_nothing() -> None:
    assert [t.values for t in _told([failed(0.1, 50), failed(0.2, 50)], 1.0)] == [[0.0], [0.0]]


def test_what_a_failed_trial_had_before_it_failed_does_not_count() -> None:
    died = frozen_trial(0, params(0.3, 50), state=TrialState.FAIL, curve=(0.4, 0.9), kinds=KINDS)
    unheard = frozen_trial(0, params(0.4, 50), state=TrialState.PRUNED, kinds=KINDS)
    told = _told([point(0.1, 50, 0.5), died, unheard, late(0.2, 50, 0.7)], 1.0)
    assert [t.values for t in told] == [[0.5], [0.5], [0.5], None]


def test_a_configuration_that_failed_on_one_seed_is_bad_on_all() -> None:
    good = [point(0.5, 50, value) for value in (0.82, 0.81, 0.83)]
    known = [*good, failed(0.5, 50), point(0.2, 50, 0.6), point(0.3, 50, 0.7)]
    for seed, trial in enumerate(known):
        trial.number, trial.user_attrs["seed"] = seed, seed % 4
    assert [t.values for t in _told(known, 1.0)] == [[0.6]] * 5 + [[0.7]]
    assert [t.user_attrs["seed"] for t in _told(known, 1.0)] == [0, 1, 2, 3, 0, 1]


@pytest.mark.parametrize("value", [0.1, 0.7, 1 / 3])
def test_values_that_are_all_equal_promise_nothing(value: float) -> None:
    draws = [params(0.5, 100), params(1.0, 0)]
    assert best(draws, [point(0.1 * i, 50, value) for i in range(7)], 1.0, toy(None))[0] is draws[0]


def test_failures_do_not_stand_for_trials_that_ran_to_their_end() -> None:
    known = [point(0.2, 50, 0.5), failed(0.4, 50), failed(0.6, 50), late(0.8, 50, 0.3)]
    draws = [params(0.9, 50), params(0.1, 50), params(0.3, 50)]
    assert best(draws, known, 1.0, toy(None))[0] is draws[0] and best(draws, known, -1.0, toy(None))[0] is draws[0]


@pytest.mark.parametrize("better", [1, 2])
def test_two_trials_that_ran_to_their_end_are_enough(better: int) -> None:
    known = [point(0.2, 50, 0.2), point(0.8, 50, 0.8), late(0.1, 50, 0.1)]
    draws = [params(0.1, 50), params(0.2, 50), params(0.3, 50)]
    draws[better] = params(0.85, 50)
    assert best(draws, known, 1.0, toy(None))[0] is draws[better]


def test_the_same_federation_twice_says_nothing() -> None:
    known = [point(0.2, 50, 0.2), point(0.2, 50, 0.2), late(0.9, 50, 0.9)]
    draws = [params(0.1, 50), params(0.9, 50), params(0.5, 50)]
    assert best(draws, known, 1.0, toy(None))[0] is draws[0]


def test_of_more_than_the_model_reads_it_is_told_of_good_and_of_poor_ones() -> None:
    known = [point(n / 1000, 50, (n * 7919 % 1000) / 1000) for n in range(900)]
    for n, trial in enumerate(known):
        trial.number = n
    stopped = [
        frozen_trial(900 + n, params(n / 1000, 60), state=TrialState.PRUNED, curve=(0.9, n / 100), kinds=KINDS)
        for n in range(100)
    ]
    told = _told([*stopped, *known], 1.0)
    assert len(told) == len({t.number for t in told}) == MOST
    assert len(_told(known[: MOST + 1], 1.0)) == MOST
    assert [t.number for t in _told(known[:MOST], 1.0)] == [*range(MOST)], "as they came, where all are read"
    ranked = sorted(known, key=lambda t: -t.values[0])
    assert [t.number for t in told[: MOST // 2]] == [t.number for t in ranked[: MOST // 2]]
    order = [*(t.number for t in ranked), *(t.number for t in reversed(stopped))]
    places = [order.index(t.number) for t in told[MOST // 2 :]]
    assert places[0] == MOST // 2 and places[-1] >= 1000 - 12, "stopped ones last"
    assert {b - a for a, b in itertools.pairwise(places)} == {11, 12}, "evenly among the others"
    assert [t.number for t in _told(known, -1.0)][:2] == [t.number for t in ranked[:-3:-1]]


def test_a_proposal_is_a_configuration_that_the_search_has_not_had() -> None:
    two = Parameter("x", "choice", "a", "", options=("a", "b"))
    where = Space("toy", "fedavg", {"x": Dimension(two, options=("a", "b"))})
    for number in range(6):
        assert proposed(where, [], [{"x": "a"}], 1.0, 0, number)[0].params == {"x": "b"}
    assert {proposed(where, [], [], 1.0, 0, number)[0].params["x"] for number in range(9)} == {"a", "b"}
    known = [frozen_trial(0, {"x": "a"}, v, kinds=where.distributions()) for v in [0.1, 0.2] * FEWEST]
    assert proposed(where, known, [t.params for t in known], 1.0, 0, 20)[0].params == {"x": "b"}
    for width in (150, 400):  # one of so many is left
        count = Parameter("n", "integer", 1, "", low=1, high=width)
        many = Space("toy", "fedavg", {"n": Dimension(count, 1, width)})
        had = [{"n": k} for k in range(1, width + 1) if k != 77]
        assert [proposed(many, [], had, 1.0, 0, number)[0].params for number in range(20)] == [{"n": 77}] * 20
    again = proposed(where, known, [{"x": "a"}, {"x": "b"}], 1.0, 0, 20)[0]
    assert again.params in ({"x": "a"}, {"x": "b"}) and again.state == TrialState.RUNNING
    assert again.distributions == where.distributions()


def test_a_step_that_was_written_otherwise_is_the_same_step() -> None:
    """Optuna adds up steps, which rounds: 0.1 · 3 = 0.30000000000000004."""
    real = Parameter("x", "real", 0.0, "", low=0.0, high=1.0)
    where = Space("toy", "fedavg", {"x": Dimension(real, 0.0, 1.0, step=0.1)})
    had = [{"x": 0.1 * k} for k in range(11) if k != 5]
    assert any(one["x"] != round(one["x"], 1) for one in had)
    assert [proposed(where, [], had, 1.0, 0, number)[0].params for number in range(20)] == [{"x": 0.5}] * 20


def test_the_trial_depends_on_seed_and_number_alone() -> None:
    known = [point(0.1 * i, 10 * i, 0.1 * i) for i in range(8)]

    def made(seed: int, number: int, seen: int = 8) -> dict[str, Any]:
        return proposed(toy(None), known[:seen], [], 1.0, seed, number)[0].params

    assert made(0, 8) == made(0, 8)
    assert len({tuple(made(*of).values()) for of in ((0, 8), (0, 9), (1, 8))}) == 3
    assert made(0, 8, 1) == made(0, 8, 2) != made(0, 8, 3), "the first draw, before there are enough"


def test_what_is_drawn_for_a_trial() -> None:
    where = toy(None)
    rng = generator(3, 8, "candidates")
    expected = [spread(where, 3, 8), *(uniform(where, rng) for _ in range(199))]
    assert _drawn(where, 3, 8, tried([])) == [where.params(values) for values in expected]


def test_the_search_for_something_new_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Parameter("x", "choice", "a", "", options=("a",))
    where = Space("toy", "fedavg", {"x": Dimension(one, options=("a",))})
    asked = []
    monkeypatch.setattr(expected_improvement, "uniform", lambda *given: asked.append(given) or {"x": "a"})
    assert proposed(where, [], [{"x": "a"}], 1.0, 0, 0)[0].params == {"x": "a"}
    assert len(asked) == 3999, "the first draw is no such one"


@pytest.mark.parametrize("cost", [None, 0.9])
def test_several_at_once_are_those_that_are_chosen_one_after_the_other(cost: float | None) -> None:
    """Each as if the ones before it ran already."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        where = toy(cost)
        known = [point(x, round(100 * s), x - (s - 0.5) ** 2) for s, x in rng.random((8, 2))]
        for number, trial in enumerate(known):
            trial.number = number
        draws = [params(x, round(100 * s)) for s, x in rng.random((30, 2))]
        chosen, running = best(draws, known, 1.0, where, (), 5), []
        for one in chosen:
            assert best(draws, known, 1.0, where, running) == [one]
            running.append(point(one["x"], one["steps"]))
        beside = best(draws, known, 1.0, where, running, 2)
        assert beside[:1] == best(draws, known, 1.0, where, running) and beside != chosen[:2]
    every = best(draws, known, 1.0, where, running, 99)
    assert sorted(map(draws.index, every)) == [*range(30)], "no draw twice"


def test_one_is_proposed_at_once_for_every_so_many_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    where, known = toy(None), [point(0.1 * i, 10 * i, 0.1 * i) for i in range(8)]
    for number, trial in enumerate(known):
        trial.number = number
    monkeypatch.setattr(expected_improvement, "BESIDE", 4)
    running = [point(*at) for at in [(0.05, 3), (0.3, 80), (0.6, 5), (0.9, 50), (0.15, 60), (0.45, 33), (0.75, 99)]]

    def made(seen: int, beside: int, most: int = 9) -> list[dict[str, Any]]:
        return [trial.params for trial in proposed(where, known[:seen], [], 1.0, 0, 20, running[:beside], most)]

    assert [len(made(8, beside)) for beside in (0, 4, 7)] == [1, 1, 1]
    running += [point(0.5, 50 + i) for i in range(5)]
    assert [len(made(8, beside)) for beside in (8, 11, 12)] == [2, 2, 3]
    assert len(made(8, 12, 2)) == 2, "no more than trials are left"
    assert made(8, 7) == made(8, 7, 1), "and one by one as ever"
    assert len(made(2, 12)) == 1 and made(2, 12) == [where.params(spread(where, 0, 20))], "of less than three is known"


# -- a whole search ------------------------------------------------------------------------------------------------


RACE = {"budget": 108, "seeds": (0, 1, 2, 3)}


@pytest.mark.parametrize(
    "changes",
    [{"scheduler": "asha"}, {"scheduler": "none"}, RACE, {"early": 8}, {**RACE, "early": 8}],
    ids=["asha", "none", "race", "early", "early race"],
)
def test_order_width_and_interruptions_change_nothing(tmp_path: Path, changes: dict[str, Any]) -> None:
    changes = {"trials": 13, "sampler": "ei", **changes}
    one = conduct(tmp_path / "one", where=marked(), **changes)
    assert conduct(tmp_path / "two", 2, -1, where=marked(), **changes) == one
    assert conduct(tmp_path / "killed", 2, every=1, where=marked(), **changes) == one
    plain = conduct(tmp_path / "plain", **changes)
    made = experiment(tmp_path / "one", **changes)
    seen = next(n for n in range(made.trials) if made.seen(n) >= FEWEST)
    assert [trial[2] for trial in one[:seen]] == [trial[2] for trial in plain[:seen]], "nothing is compared there"
    assert [trial[2] for trial in one] != [trial[2] for trial in plain]


def test_under_several_conditions_configurations_are_compared(tmp_path: Path) -> None:
    changes = {"trials": 18, "scheduler": "none", "lag": 2, "sampler": "ei"}
    where, plain = varied(10.0, 0.1, where=marked()), varied(10.0, 0.1)
    one = conduct(tmp_path / "one", where=where, **changes)
    assert conduct(tmp_path / "killed", 2, -1, 1, where, **changes) == one
    assert one != conduct(tmp_path / "plain", where=plain, **changes)
    assert all(a[2]["alpha"] == b[2]["alpha"] for a, b in zip(one[::2], one[1::2], strict=True))


@pytest.mark.parametrize(
    "changes",
    [
        {"sampler": "tpe"},
        {"sampler": "random"},
        {"sampler": "grid", "trials": 6},
        {"sampler": "nsga2"},
        {"sampler": "gp"},
    ],
    ids=lambda changes: changes["sampler"],
)
def test_other_samplers_propose_as_if_nothing_were_marked(tmp_path: Path, changes: dict[str, Any]) -> None:
    changes = {"trials": 10, **changes}
    made = [conduct(tmp_path / name, where=where, **changes) for name, where in (("a", space()), ("b", marked()))]
    assert [trial[2] for trial in made[0]] == [trial[2] for trial in made[1]]


def test_the_user_is_told(tmp_path: Path) -> None:
    told = "Proposals are compared by what they promise per second of cost, which depends on steps (0.9 of a round)."
    assert expected_improvement.note("ei", toy().search) == told
    assert expected_improvement.note("gp", toy().search) == (
        "The space marks the cost of steps (0.9 of a round); costs are not compared by the sampler gp, only by ei."
    )
    assert expected_improvement.note("ei", toy(None).search) is None
    asked = experiment(tmp_path, sampler="ei")
    assert told in known(asked, toy(), FACTS).notes
    assert not any("cost" in said for said in known(asked, toy(None), FACTS).notes)


def test_marks_that_were_edited_into_nonsense_are_told(tmp_path: Path) -> None:
    data = json.loads(json.dumps(toy().to_json()))
    data["search"][1]["cost"] = 1.0
    with pytest.raises(UserError, match=r"cost of steps must be below 1, .* \(space.json\)"):
        opened(tmp_path / "run", start(tmp_path / "run"), Space.from_json(data))


# -- what it is for ------------------------------------------------------------------------------------------------


def work_until(folder: Path, where: Space, sampler: str, seed: int, target: float) -> float:
    """What a search spends until a configuration is as good as `target`, in rounds of the dearest one. The value has
    its peak in x and hardly depends on the steps, which are nine tenths of a round's cost."""

    def value(proposal: Proposal) -> float:
        x, steps = float(proposal.values["x"]), float(proposal.values["steps"])
        return -((x - 0.37) ** 2) + 1e-4 * steps / 100

    made = start(folder, seed=seed, trials=120, scheduler="none", rounds=1, lag=1, sampler=sampler)
    queue, spent, best = opened(folder, made, where), 0.0, -math.inf
    while best < target and (proposal := queue.propose()) is not None:
        best = max(best, value(proposal))
        spent += 0.1 + 0.9 * float(proposal.values["steps"]) / 100
        queue.finish(proposal.number, Ending("completed", 1, None, {1: (value(proposal),)}))
    assert best >= target
    return spent


def test_the_same_value_takes_less_work_where_the_cost_is_marked(tmp_path: Path) -> None:
    spent = {
        (sampler, cost): [
            work_until(tmp_path / f"{sampler}-{cost}-{seed}", toy(cost), sampler, seed, -1e-4) for seed in range(6)
        ]
        for sampler, cost in (("tpe", None), ("ei", None), ("ei", 0.9))
    }
    assert sum(spent["ei", 0.9]) < 0.8 * sum(spent["ei", None]), spent
    assert sum(spent["ei", None]) < 0.9 * sum(spent["tpe", None]), spent
