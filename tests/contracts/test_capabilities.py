"""What sets methods apart, in the words of the papers: a method that says that label counts leave the clients sends
them, and no other does. A new method needs no entry."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.contracts.test_methods import CPU, METHODS, values_for
from trainables import registry
from trainables.federation import FederationConfig
from trainables.simulation.rounds import Simulation

GLOBAL, WIDTHS, OWN, COUNTS = (
    "global model",
    "sub-models of any width",
    "clients' own architectures",
    "label counts leave clients",
)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fedavg", (GLOBAL,)),
        ("local", ()),
        ("fedper", ()),
        ("heterofl", (GLOBAL, WIDTHS)),
        ("dfrd", (GLOBAL, WIDTHS, COUNTS)),
        ("fedmdcg", (COUNTS,)),
        ("dhf", (GLOBAL, OWN, COUNTS)),
    ],
)
def test_what_a_method_says_of_itself(name: str, words: tuple[str, ...]) -> None:
    assert registry.method(name).capabilities == words


def test_bytes_of_dhf_are_counted_by_purpose() -> None:
    """DHF's prototypes, their counts and the heads serve PMA; whole models and the requests for them serve GME."""
    purposes = {"pma": {"prototype/", "count/", "head/"}, "gme": {"model/", "request"}}
    assert {purpose: set(names) for purpose, names in registry.method("dhf").traffic.items()} == purposes


def test_fedftg_keeps_what_a_client_draws_and_refuses_what_does_not_fit() -> None:
    """As its clients, too, count labels: its own state per client, and its own check of a configuration."""
    method, fed = registry.method("fedftg"), FederationConfig(rho=5)
    assert method.ClientState is not None
    assert "base" in " ".join(method.check(method.Config(base="fedavg"), fed))
    assert method.check(method.Config(base="fedrolex"), fed) == []


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
