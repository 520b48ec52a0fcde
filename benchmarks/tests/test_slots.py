"""The clock on which a search's trials run for the case of many slots, and rungs that decide by what has arrived."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.cases import slots
from benchmarks.replay import rungs
from benchmarks.replay.bench import tables
from benchmarks.replay.searcher import Setting
from benchmarks.replay.searchers.arriving import Arriving
from benchmarks.replay.simulator import Simulation
from benchmarks.tables.lines import RECORDED


def test_a_driver_without_a_cost_keeps_slots_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots.time, "process_time", lambda: 0.0)
    found = slots.Driver(3, 7).run()
    assert found.busy() == pytest.approx(1.0)
    assert {name: len(calls) for name, calls in found.took.items() if name != "report"} == {"proposal": 7, "end": 7}
    assert len(found.rounds) == len(found.took["report"]) + 7


def test_what_a_driver_takes_is_idle_time() -> None:
    """Two slots until the last proposal at 40 s: of one 30 s pass in rounds, of the other 10 and 15 s."""
    driver = slots.Driver(2, 3)
    driver.rounds, driver.last_proposal = [(10.0, 40.0), (0.0, 10.0), (25.0, 60.0)], 40.0
    assert driver.busy() == pytest.approx((30 + 10 + 15) / 80)


def test_rungs_by_arrival_let_trials_go_on_where_they_stopped() -> None:
    """Every round of a trial is paid for once, and what was stopped and went on has all its rounds."""
    [table] = tables(RECORDED, ["fedavg"]).values()
    episode = table.episode(0)
    setting = Setting(table.space, table.rounds, episode.seeds, 0, 8, episode.truth_curve, episode.fresh)
    searcher = Arriving(setting, later=True)
    simulation = Simulation(episode, searcher, slots=8, budgets=[25 * table.rounds])
    simulation.run()
    assert searcher.gone_on > 0
    trials = searcher.study.trials()
    ended = [trial for trial in trials if trial.state.name == "COMPLETE"]
    assert len(ended) >= searcher.gone_on
    assert all(list(trial.intermediate_values) == [*range(1, table.rounds + 1)] for trial in ended)
    rounds = [trial.user_attrs.get("rounds", len(trial.intermediate_values)) for trial in trials]
    assert sum(rounds) == simulation.spent


def test_regret_by_the_clock() -> None:
    """Blind for two of ten moments, 0.5 for four of them, then 0.1."""
    assert rungs.by_clock([[(3.0, 0.5), (7.0, 0.1)]], 10.0) == pytest.approx([(2 * 1.0 + 4 * 0.5 + 4 * 0.1) / 10])
    assert isinstance(rungs.by_clock([[(3.0, 0.5)]], 5.0), np.ndarray)
