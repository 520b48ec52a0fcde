"""A server's state counts its rounds: what a method does by the round's number starts from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contracts.test_methods import METHODS, simulate

#: Methods that do nothing by the round's number, and keep none.
WITHOUT = {"fedavg", "fedgkd", "fedprox", "qffl"}


@pytest.mark.parametrize("name", METHODS)
def test_a_state_counts_its_rounds(name: str, toy: Path) -> None:
    s, _ = simulate(name, toy, 0)
    counted = [getattr(s.progress.state, "round", None)]
    for _ in range(2):
        s.run_round()
        counted.append(getattr(s.progress.state, "round", None))
    assert counted == ([None] * 3 if name in WITHOUT else [0, 1, 2])
