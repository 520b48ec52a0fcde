"""The clock on which a search's trials run for the case of many slots."""

from __future__ import annotations

import pytest

from benchmarks.cases import slots


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
