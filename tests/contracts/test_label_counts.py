"""A method that says that label counts leave the clients sends them, and no other does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.contracts.test_methods import CPU, METHODS, values_for
from trainables import registry
from trainables.simulation.rounds import Simulation

#: The methods whose papers let clients tell the server how many samples of each class they trained on or hold.
SHARE_COUNTS = {"dfrd", "dhf", "fedftg", "fedgen", "fedmdcg", "fedproto"}


#: Every method as it is, and FedCG with each of its aggregations.
CASES: list[tuple[str, dict[str, str]]] = [(name, {}) for name in METHODS]
CASES += [("fedcg", {"server_agg": aggregation}) for aggregation in ("ave", "ave_star", "kd", "kdc")]


@pytest.mark.parametrize(("name", "changes"), CASES)
def test_label_counts_leave_the_clients_of_the_methods_that_say_so(
    name: str, changes: dict[str, str], toy: Path
) -> None:
    s = Simulation(name, values_for(name, toy) | changes, 3, CPU)
    _, results = s.exchange()
    for client, result in results.items():
        counts = {key: t for key, t in result.upload.items() if "count" in key}
        assert bool(counts) == s.method.sends_label_counts(s.config)
        held = torch.bincount(s.data.clients[client].y, minlength=s.fed.classes)
        assert name != "dhf" or {k: int(t) for k, t in counts.items()} == {
            f"count/{label}": int(n) for label, n in enumerate(held) if n > 0
        }
        assert all(torch.all(t <= held) for key, t in counts.items() if key == "label_counts")
    said = {word for word in s.method.capabilities if word.startswith("label counts leave clients")}
    assert name != "fedcg" or bool(counts) == (changes.get("server_agg") == "kdc"), "only its distillation by p(y)"
    depends = {"label counts leave clients in some configurations"}
    assert said == (depends if name == "fedcg" else {"label counts leave clients"} if counts else set())


def test_the_methods_of_these_papers_say_so() -> None:
    assert all(registry.method(name).shares_label_counts is True for name in SHARE_COUNTS)
