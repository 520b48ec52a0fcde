"""Random streams: records of earlier versions rest on these very numbers."""

from __future__ import annotations

from trainables.rng import Rng


def test_a_key_is_half_of_eight_bytes_of_the_paths_digest() -> None:
    """`b2sum -l 64` of the text 3/'a'/'b'/1 is ac5dbc5f8bed9252."""
    assert Rng(3).child("a").key("b", 1) == Rng(3, ("a",)).key("b", 1) == 0xAC5DBC5F8BED9252 // 2
    assert Rng(3).key("a", "b", 1) == Rng(3).child("a", "b").key(1), "the path counts, not how it was made"
    assert len({Rng(3).key("ab"), Rng(3).key("a", "b"), Rng(4).key("ab"), Rng(3).key("ba")}) == 4
