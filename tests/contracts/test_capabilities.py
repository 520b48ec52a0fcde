"""What sets methods apart, in the words of the papers; a new method needs no entry."""

from __future__ import annotations

import pytest

from trainables import registry
from trainables.federation import FederationConfig

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


def test_heterofl_without_reduction_is_fedavg() -> None:
    assert [(limit.values, limit.equals) for limit in registry.method("heterofl").limits] == [({"rho": 0}, "fedavg")]
