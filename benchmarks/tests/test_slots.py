"""The clock on which a search's trials run for the case of many slots, and how busy declared ones are."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from array import array
from pathlib import Path

import pytest

from benchmarks import measure
from benchmarks.cases import declared, slots


def test_a_driver_without_a_cost_keeps_slots_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots.time, "process_time", lambda: 0.0)
    found = slots.Driver(3, 7).run()
    assert found.busy() == pytest.approx(1.0)
    assert {name: len(calls) for name, calls in found.took.items() if name != "report"} == {"proposal": 7, "end": 7}
    assert len(found.begins) == len(found.ends) == len(found.took["report"]) + 7


def test_what_a_driver_takes_is_idle_time() -> None:
    """Two slots until the last proposal at 40 s: of one 30 s pass in rounds, of the other 10 and 15 s."""
    driver = slots.Driver(2, 3)
    driver.begins, driver.ends = array("d", [10.0, 0.0, 25.0]), array("d", [40.0, 10.0, 60.0])
    driver.last_proposal = 40.0
    assert driver.busy() == pytest.approx((30 + 10 + 15) / 80)


def test_how_busy_declared_slots_are() -> None:
    """Two slots, the first one with trials from 0 to 10 and from 10.5 on, the second one from 1 to 11 and from 12 on:
    of 24 seconds until the last one begins 21.5 are under way."""
    begun, ended = (0.0, 1.0, 10.5, 12.0), (10.0, 11.0, 20.0, 21.0)
    notes = [*(("begin", when) for when in begun), *(("end", when) for when in ended)]
    until_all, busy = declared.occupied(notes, 2)
    assert until_all == 1.0 and busy == pytest.approx(100 * 21.5 / 24)
    assert math.isnan(declared.occupied(notes, 3)[0])


@pytest.mark.nightly
def test_a_search_on_declared_slots_is_measured(tmp_path: Path) -> None:
    """Through a Ray that was started with more cores than a trial needs, which the search joins by its address."""
    environment = os.environ | {"FEDTUNE_BENCH": str(tmp_path)}
    words = [sys.executable, "-m", "benchmarks", "run", "--quick", "declared"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=measure.ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads((tmp_path / "quick.json").read_text())["cases"]["declared"]["tables"][0]["rows"]
    assert row[:2] == [3, 12] and 0 <= row[2] < row[4] and 0 < row[3] <= 100
