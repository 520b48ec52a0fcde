"""A method that says that label counts leave the clients sends them, and no other does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.contracts.test_methods import CPU, METHODS, values_for
from trainables import registry
from trainables.simulation.rounds import Simulation

#: The methods whose papers let clients tell the server how many samples of each class they trained on or hold.
SHARE_COUNTS = {"dfrd", "dhf", "fedftg", "fedgen", "fedmdcg"}


@pytest.mark.parametrize("name", METHODS)
def test_label_counts_leave_the_clients_of_the_methods_that_say_so(name: str, toy: Path) -> None:
    s = Simulation(name, values_for(name, toy), 3, CPU)
    _, results = s.exchange()
    for client, result in results.items():
        counts = {key: t for key, t in result.upload.items() if "count" in key}
        assert bool(counts) == s.method.shares_label_counts
        held = torch.bincount(s.data.clients[client].y, minlength=s.fed.classes)
        assert name != "dhf" or {k: int(t) for k, t in counts.items()} == {
            f"count/{label}": int(n) for label, n in enumerate(held) if n > 0
        }
        assert all(torch.all(t <= held) for key, t in counts.items() if key == "label_counts")
    assert ("label counts leave clients" in s.method.capabilities) == s.method.shares_label_counts


def test_the_methods_of_these_papers_say_so() -> None:
    assert all(registry.method(name).shares_label_counts for name in SHARE_COUNTS)
