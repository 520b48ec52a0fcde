"""What sets methods apart, in the words of the papers; a new method needs no entry."""

from __future__ import annotations

import pytest

from trainables import registry

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
