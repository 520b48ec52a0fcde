"""`fedtune search` and `fedtune auto` as the replay drives them are what Ray runs: same proposals, stops and values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from analysis.auto.record import AutoRecord
from benchmarks.replay.auto.command import AutoSearch, fresh_mean, led
from benchmarks.replay.auto.world import METHOD
from benchmarks.replay.searcher import Floats, Setting
from benchmarks.replay.searchers import SEARCHERS
from benchmarks.replay.searchers.present import Present
from benchmarks.replay.searchers.racing import Racing
from benchmarks.replay.simulator import Simulation
from fedtune.api.auto import AutoResult
from fedtune.api.search import Result
from fedtune.machine.resources import early, lag
from fedtune.planning.resumption import part_of
from fedtune.record.experiment import search_seeds
from fedtune.record.journal import StudyFile
from search_spaces import run_folder
from search_spaces.parameter import Value
from tests.fedtune.api.test_auto import METHODS
from tests.fedtune.conftest import space
from tests.fedtune.fake import Fake, OfMethod

ROUNDS = 9
#: What a trial sees in the fixed order of two slots, whatever runs side by side.
FIXED = {"lag": lag(2), "early": early(2)}


class Faked:
    """An episode that answers what the fake simulation measures."""

    best, blind = 1.0, 0.5

    def __init__(self, seeds: int = 2, **fixed: float) -> None:
        self.seeds, self.fixed = seeds, fixed

    def curve(self, values: Mapping[str, Value], seed: int) -> Floats:
        fake = Fake("fedavg", dict(values) | self.fixed | {"rounds": ROUNDS}, (seed,))
        return np.array([fake.step()[0]["val_global_accuracy"] for _ in range(ROUNDS)])

    def seconds(self, values: Mapping[str, Value], seed: int) -> float:
        return 1.0 + float(values["alpha"])  # trials overtake one another

    def truth_curve(self, values: Mapping[str, Value]) -> Floats:
        return self.curve(values, 0)

    def expected(self, values: Mapping[str, Value]) -> float:
        return float(self.curve(values, 0)[-1])


def facts(trial: Any) -> list[Any]:
    noted = [trial.user_attrs.get(name) for name in ("rounds", "seed")]
    return [trial.number, trial.state.name, trial.values, trial.params, trial.intermediate_values, *noted]


def recorded(ran: Result) -> list[list[Any]]:
    return [facts(trial) for trial in StudyFile(ran.folder).trials()]


@pytest.mark.parametrize(
    "changes",
    [{"sampler": "ei"}, {"sampler": "tpe"}, {"sampler": "random"}],
    ids=lambda changes: changes["sampler"],
)
def test_a_replayed_search_is_the_one_that_ray_runs(conduct: Callable[..., Result], changes: dict[str, Any]) -> None:
    changes = {"trials": 16, "grace": 1, **FIXED, **changes}
    ran = conduct("ran", seeds=(0, 1), concurrency=2, **changes)
    real = recorded(ran)
    episode = Faked()
    for slots in (1, 3):
        setting = Setting(space(), ROUNDS, 2, changes.get("seed", 0), slots, episode.truth_curve)
        replayed = Present(setting, each=2, first=(), **changes)
        simulation = Simulation(episode, replayed, slots=slots, budgets=[100 * ROUNDS])
        verdict = simulation.run()[0].verdict
        assert [facts(trial) for trial in replayed.queue.trials()] == real
        assert simulation.spent == 2 * sum(len(trial.intermediate_values) for trial in replayed.queue.trials())
        assert ran.best is not None and ran.best.estimate is not None and verdict is not None
        said = ran.best.estimate
        assert verdict.values == ran.best.params
        bounds = np.clip([verdict.low, verdict.high], 0, 1)  # a replay does not end an accuracy's interval at 1
        assert (verdict.estimate, *bounds) == pytest.approx((said.mean, said.low, said.high))
    states = {state for _, state, *_ in real}
    assert states == {"COMPLETE", "PRUNED"}, "some were stopped early"


def test_a_replayed_race_is_the_one_that_ray_runs(conduct: Callable[..., Result]) -> None:
    """Until the budget of the real one ends, whatever runs side by side."""
    changes = {"sampler": "ei", "grace": 1, **FIXED, "values": {"own_noise": 0.2}}
    real = recorded(conduct("raced", seeds=search_seeds(0, 3), budget=20 * ROUNDS, concurrency=2, **changes))
    assert {seed for *_, seed in real} == {0, 1, 2}, "configurations were given further seeds"
    episode = Faked(seeds=3, own_noise=0.2)
    for slots in (1, 3):
        setting = Setting(space(), ROUNDS, 3, 0, slots, episode.truth_curve)
        replayed = Racing(setting, most=3, first=(), **changes)
        Simulation(episode, replayed, slots=slots, budgets=[25 * ROUNDS]).run()
        assert [facts(trial) for trial in replayed.queue.trials()][: len(real)] == real


def test_a_replayed_search_confirms_with_the_last_fifth_of_its_rounds() -> None:
    """Until then it is the search of one seed, which stops trials early and spends what that saves."""
    episode = Faked(seeds=9, own_noise=0.2)
    setting = Setting(space(), ROUNDS, 9, 0, 1, episode.truth_curve)
    confirmed = SEARCHERS["fedtune-1-confirmed-12"](setting)
    simulation = Simulation(episode, confirmed, slots=1, budgets=[12 * ROUNDS])
    verdict = simulation.run()[0].verdict
    assert isinstance(confirmed, Racing)
    trials = confirmed.queue.trials()
    last = [trial for trial in trials if trial.user_attrs.get("confirms")]
    assert len(last) >= 2 and trials[-len(last) :] == last and all(trial.user_attrs["seed"] > 0 for trial in last)
    assert 11 * ROUNDS < simulation.spent <= 12 * ROUNDS
    plain = Present(setting, each=1)
    Simulation(episode, plain, slots=1, budgets=[12 * ROUNDS]).run()
    params = [trial.params for trial in plain.queue.trials()][: len(trials) - len(last)]
    assert [trial.params for trial in trials][: len(params)] == params
    assert verdict is not None and verdict.low is not None


class FakedMethods:
    """An episode in which place k is the k-th of these seeds, and federations measure what the fake simulation does."""

    best, blind = 1.0, 0.5

    def __init__(self, dealt: Sequence[int]) -> None:
        self.dealt, self.seeds = tuple(dealt), len(dealt)

    def curve(self, values: Mapping[str, Any], seed: int) -> Floats:
        fake = OfMethod(str(values[METHOD]), {**values, "rounds": 6}, (self.dealt[seed],))
        return np.array([fake.step()[0]["val_global_accuracy"] for _ in range(6)])

    def seconds(self, values: Mapping[str, Any], seed: int) -> float:
        return 1.0 + 10 * float(values["lr"])  # trials overtake one another

    def truth_curve(self, values: Mapping[str, Any]) -> Floats:
        return self.curve(values, 0)

    def expected(self, values: Mapping[str, Any]) -> float:
        return float(self.curve(values, 0)[-1])


def test_a_replayed_search_over_methods_is_the_one_that_ray_runs(whole: AutoResult) -> None:
    slots = 3
    record = AutoRecord.read(whole.folder)
    runs = {name: part_of(whole.folder / run_folder.SEARCHES / name) for name in METHODS}
    fresh = whole.auto.fresh["fedavg"].experiment["seeds"]
    episode: Any = FakedMethods((*runs["fedavg"].experiment.seeds, *fresh))
    spaces = {name: part.space for name, part in runs.items()}
    lead = Setting(spaces["fedavg"], 6, episode.seeds, record.seed, slots, episode.truth_curve)
    search = AutoSearch(lead, spaces, record)
    simulation = Simulation(episode, search, slots=slots, budgets=[int(record.search_budget)])
    simulation.run()

    def facts(trial: Any) -> list[Any]:
        place = trial.user_attrs["place"]
        return [trial.number, place, trial.state.name, trial.values, trial.params, trial.intermediate_values]

    for place, name in enumerate(METHODS):
        assert [*map(facts, search.queue.history.of(place))] == [*map(facts, whole.auto.searches[name].frozen)]
    assert simulation.spent == sum(row.seed_rounds for row in whole.auto.rows)
    found = {name: verdict.values for name, verdict in search.winners().items()}
    assert found == {row.method: {METHOD: row.method, **row.configuration} for row in whole.auto.rows}
    chosen, seeds = led(episode, found, record)
    assert chosen is not None and chosen[METHOD] == whole.leader and seeds == 3 * len(fresh)
    for row in whole.auto.rows:
        assert fresh_mean(episode, found[row.method], range(1, 4)) == pytest.approx(row.mean)
