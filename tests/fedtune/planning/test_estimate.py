"""What a dry run says that a round costs, from rounds with fewer clients where many take part."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedtune.commands import _output
from fedtune.options import SearchRequest
from fedtune.planning import estimate as module
from fedtune.planning.estimate import FEW, MORE, NEXT, PATIENCE, RoundCost, estimate, round_cost
from fedtune.planning.plan import plan
from trainables.simulation import replicates


class Rounds:
    """Rounds that cost `fixed` seconds and `each` for every client; the two that are timed take `factor` times as long
    together. Notes with how many clients they were timed."""

    def __init__(self, clients: int, fixed: float, each: float, factor: float = 2.0) -> None:
        self.clients, self.fixed, self.each, self.factor = clients, fixed, each, factor
        self.asked: list[int | None] = []

    def __call__(self, clients: int | None) -> tuple[float, float]:
        self.asked.append(clients)
        seconds = self.fixed + self.each * (self.clients if clients is None else clients)
        return seconds, self.factor * seconds


@pytest.mark.parametrize("clients", [1, NEXT, MORE, 50, 1000])
def test_quick_rounds_are_timed_as_they_are(clients: int) -> None:
    rounds = Rounds(clients, 0.01, PATIENCE / 10_000)
    assert round_cost(rounds, clients) == RoundCost(0.01 + clients * PATIENCE / 10_000)
    assert rounds.asked[-1] is None


def test_the_rounds_of_few_clients_are_timed_as_they_are_however_long_they_take() -> None:
    rounds = Rounds(NEXT, 100.0, 100.0)
    assert round_cost(rounds, NEXT) == RoundCost(100.0 + NEXT * 100.0) and rounds.asked == [None]


@pytest.mark.parametrize(
    ("clients", "fixed", "each", "timed"),
    [
        (100, 0.1, 0.1, (FEW, MORE)),
        (100, 5.0, 0.2, (FEW, NEXT)),  # two rounds of a few clients take longer than anybody waits
        (MORE, 50.0, 20.0, (FEW, NEXT)),
        (NEXT + 1, 50.0, 20.0, (FEW, NEXT)),
    ],
)
def test_long_rounds_of_many_clients_are_concluded_from_fewer(
    clients: int, fixed: float, each: float, timed: tuple[int, int]
) -> None:
    rounds = Rounds(clients, fixed, each)
    found = round_cost(rounds, clients)
    assert found.seconds == pytest.approx(fixed + clients * each) and found.timed_with == timed
    assert rounds.asked == list(timed)


def test_a_part_that_every_round_has_does_not_make_rounds_of_many_clients_long() -> None:
    """A hundred times the cost of a few would be; a fixed part of it and little for a client is not."""
    rounds = Rounds(100, 0.5, 0.001)
    assert round_cost(rounds, 100) == RoundCost(0.5 + 100 * 0.001) and rounds.asked == [FEW, MORE, None]


def test_more_clients_never_make_a_round_cheaper() -> None:
    """Timings vary: rounds of some clients may have been quicker than those of a few."""
    rounds = Rounds(50, 6.0, -0.1)
    assert round_cost(rounds, 50).seconds == pytest.approx(6.0 - NEXT * 0.1)


def test_what_decides_is_how_long_timing_took() -> None:
    """Work that is done every few rounds is in the two rounds that are timed, and hardly in their average."""
    rounds = Rounds(100, 0.5, 0.02, factor=20.0)
    assert round_cost(rounds, 100).timed_with == (FEW, NEXT)


@pytest.mark.parametrize(
    ("sets", "cohorts"),
    [
        ({"clients": 12}, [FEW, NEXT]),
        ({"clients": 12, "active_clients": 5}, [FEW, NEXT]),
        ({"clients": 12, "active_clients": 3}, [3]),
        ({"clients": 3}, [3]),
    ],
)
def test_a_plan_is_timed_with_few_of_its_clients_and_says_so(
    sets: dict[str, Any],
    cohorts: list[int],
    toy: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    built: list[int] = []

    class Watched(replicates.Replicates):
        def __init__(self, method: str, values: Any, *rest: Any, **more: Any) -> None:
            built.append(values["active_clients"] or values["clients"])
            super().__init__(method, values, *rest, **more)

    monkeypatch.setattr(replicates, "Replicates", Watched)
    monkeypatch.setattr(module, "PATIENCE", 0.0)  # every round is long
    planned = plan(
        SearchRequest("fedavg", dataset=toy, set={"model": "mlp", "local_steps": 1, **sets}, name=tmp_path / "made")
    )
    built.clear()
    found = estimate(planned)
    assert built == cohorts and found.round_seconds > 0
    _output.estimate(found, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["timed_with_clients"] == (cohorts if len(cohorts) == 2 else None)
    _output.estimate(found, as_json=False)
    assert (f"with {FEW} and {NEXT} clients" in " ".join(capsys.readouterr().out.split())) == (len(cohorts) == 2)
