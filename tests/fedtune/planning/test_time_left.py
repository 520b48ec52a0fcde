"""What a reproduction says it will take, by hand from what its rounds cost."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedtune.cli import app
from fedtune.machine import resources
from fedtune.options import ReproduceRequest
from fedtune.planning import time_left as module
from fedtune.planning.estimate import START_UP, RoundCost
from fedtune.planning.reproduction import ReproductionPlan, plan_reproduction
from fedtune.planning.time_left import TimeLeft, time_left
from tests.analysis import synthetic

#: Of two rows of FedMD-CG's Table 1; what rounds of them cost where they are timed.
ROWS, SECONDS = ("LT", "FedMD-CG"), {"local": 1.0, "fedmdcg": 4.0}


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Rounds that cost `SECONDS`, and of which methods, with how many clients, some were timed."""
    found: list[tuple[str, int]] = []

    def cost(method: str, values: Mapping[str, Any], seed: int, **where: Any) -> RoundCost:
        found.append((method, values["clients"]))
        return RoundCost(SECONDS.get(method, 1.0))

    monkeypatch.setattr(module, "timed_cost", cost)
    monkeypatch.setattr(resources, "machine", lambda: resources.Machine(2, 0))
    return found


def planned(runs: Path, **changes: Any) -> ReproductionPlan:
    asked: dict[str, Any] = {"name": "fedmdcg-table1", "small": True, "rows": ROWS, "rounds": 10, "seeds": 3}
    return plan_reproduction(ReproduceRequest(**asked | {"runs_dir": str(runs)} | changes))


def known(found: TimeLeft | str) -> TimeLeft:
    assert isinstance(found, TimeLeft)
    return found


def test_every_row_is_timed_once_and_its_rounds_are_added_up(tmp_path: Path, timed: list[tuple[str, int]]) -> None:
    said: list[str] = []
    found = known(time_left(planned(tmp_path), said.append))
    assert timed == [("local", 10), ("fedmdcg", 10)] and said == [f"timing rounds of {row}" for row in ROWS]
    assert (found.trials, found.rounds, found.at_once) == (2 * 3 * 3, 2 * 3 * 3 * 10, 2)
    work = 3 * 3 * 10 * (1.0 + 4.0) / 2
    assert found.seconds == pytest.approx(START_UP + work)
    assert (found.low, found.high) == pytest.approx((START_UP + 0.7 * work, START_UP + 2 * work))
    assert (
        "rounds of single seeds: about 4 min (3 min to 8 min), 2 at the same time. A round of one seed"
        in found.sentence()
    )
    assert "takes 1 s (LT) to 4 s (FedMD-CG), timed here now." in found.sentence()


def test_one_trial_is_not_split(tmp_path: Path, timed: list[tuple[str, int]]) -> None:
    """However many run at the same time, the longest one takes as long as it takes."""
    part = planned(tmp_path, rows=ROWS[1:], columns=("omega=1",), seeds=1, rounds=30)
    assert known(time_left(part, print)).seconds == pytest.approx(START_UP + 30 * 4.0)


def test_recorded_rounds_tell_what_is_left_costs(tmp_path: Path, timed: list[tuple[str, int]]) -> None:
    """Of the row's other cells, too; and what has been run is not run again."""
    whole = planned(tmp_path)
    first = next(part for part in whole.parts if (part.row.name, part.place) == ("LT", (1,)))
    synthetic.write(
        first.folder, keys=(), trials=1, seeds=(1000,), kind="run", rounds=10, method="local", failures=False
    )
    found = known(time_left(whole, print))
    assert timed == [("fedmdcg", 10)]
    assert {pace.row: (pace.seconds, pace.known) for pace in found.paces} == {
        "LT": (pytest.approx(0.8), module.RECORDED),
        "FedMD-CG": (4.0, module.TIMED),
    }
    lt = next(pace for pace in found.paces if pace.row == "LT")
    assert (lt.low, lt.high) == pytest.approx((0.7 * 0.8, 2 * 0.8)), "ten rounds tell no more than timed ones"
    assert found.trials == 17 and found.rounds == 170
    assert found.seconds == pytest.approx(START_UP + (80 * 0.8 + 90 * 4.0) / 2)


def test_rounds_of_more_clients_are_timed_by_themselves(tmp_path: Path, timed: list[tuple[str, int]]) -> None:
    asked = ReproduceRequest("dfrd-table11", rows=("FedRolex",), runs_dir=str(tmp_path))
    time_left(plan_reproduction(asked), print)
    assert timed == [("fedrolex", clients) for clients in (10, 20, 50, 100, 200)]


def test_rows_that_vary_a_number_each_are_timed_together(tmp_path: Path, timed: list[tuple[str, int]]) -> None:
    found = known(time_left(planned(tmp_path, name="fedmdcg-fig6", rows=("lambda1", "lambda2")), print))
    assert timed == [("fedmdcg", 10)] and [pace.row for pace in found.paces] == ["fedmdcg"]
    assert found.trials == 3 * (2 * 6 + 1), "the cell that both rows share is one run"


def test_few_rounds_are_timed_only_where_that_is_asked_for(tmp_path: Path, timed: list[tuple[str, int]]) -> None:
    few = planned(tmp_path, columns=("omega=1",), rounds=2)
    said = time_left(few, print)
    assert isinstance(said, str) and said.startswith("6 trials with 12 rounds of single seeds: how long") and not timed
    assert known(time_left(few, print, thorough=True)).rounds == 12 and len(timed) == 2


def test_the_small_form_declares_what_its_rounds_cost(tmp_path: Path, timed: list[tuple[str, int]]) -> None:
    whole = planned(tmp_path, rows=())
    found = known(time_left(whole, print))
    assert not timed and {pace.known for pace in found.paces} == {module.DECLARED}
    assert found.seconds == pytest.approx(START_UP + 7 * 3 * 3 * 10 * whole.reproduction.seconds / 2)


def test_a_grid_is_one_run_of_many_points(tmp_path: Path, timed: list[tuple[str, int]]) -> None:
    found = known(time_left(planned(tmp_path, name="dfrd-fig5", rows=(), rounds=5, seeds=2), print))
    assert (found.trials, found.rounds) == (30, 30 * 5 * 2)


def test_a_dry_run_says_it_and_creates_nothing(tmp_path: Path, timed: list[tuple[str, int]]) -> None:
    runs = tmp_path / "runs"
    words = ["reproduce", "fedmdcg-table1", "--small", "--rows", "LT", "--columns", "omega=1", "--dry-run"]
    words += ["--rounds", "2", "--seeds", "1", "--runs-dir", str(runs)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    assert "1 trial with 2 rounds of single seeds: about 8 s (7 s to 10 s)" in said
    assert "Nothing was created." in said and all(len(line) <= 80 for line in done.output.splitlines())
    told = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert told["seconds"] == pytest.approx(START_UP + 2.0) and told["paces"][0]["row"] == "LT" and told["cells"] == 1
    assert not runs.exists()
