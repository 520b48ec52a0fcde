"""Averages of named tensors, and random streams: records of earlier versions rest on these very numbers."""

from __future__ import annotations

import torch
from torch import nn

from trainables.params import average, put_state, take_state
from trainables.rng import Rng


def test_an_average_is_weighted_and_takes_whole_numbers_from_the_first() -> None:
    many = [{"w": torch.tensor([1.0, 8.0]), "batches": torch.tensor(count)} for count in (3, 5, 9)]
    for place, params in enumerate(many):
        params["w"] = params["w"] * (place + 1)
    found = average(zip(many, (1.0, 2.0, 5.0), strict=True))
    assert found["w"].tolist() == [(1 + 4 + 15) / 8, 8 * (1 + 4 + 15) / 8] and found["w"].dtype == torch.float32
    assert int(found["batches"]) == 3


def layer_and_adam() -> tuple[nn.Linear, torch.optim.Adam]:
    layer = nn.Linear(3, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.arange(6.0).view(2, 3))
        layer.bias.zero_()
    return layer, torch.optim.Adam(layer.parameters(), lr=0.1)


def step(layer: nn.Linear, adam: torch.optim.Adam, x: float) -> None:
    adam.zero_grad()
    (layer(torch.full((1, 3), x)) ** 2).sum().backward()
    adam.step()


def test_what_is_taken_is_a_copy_and_what_is_put_back_is_too() -> None:
    layer, adam = layer_and_adam()
    assert take_state(adam, layer) == {}
    step(layer, adam, 1.0)
    taken = take_state(adam, layer)
    assert taken.keys() == {f"{p}/{q}" for p in ("weight", "bias") for q in ("step", "exp_avg", "exp_avg_sq")}
    # Of Adam's first step: m = 0.1 g with g = 2 y x, and the outputs y are 0+1+2 and 3+4+5.
    torch.testing.assert_close(taken["bias/exp_avg"], torch.tensor([0.6, 2.4]))
    before = {name: value.clone() for name, value in taken.items()}
    step(layer, adam, 2.0)
    other, fresh = layer_and_adam()
    put_state(fresh, other, taken)
    step(other, fresh, 2.0)
    assert all(torch.equal(taken[name], before[name]) for name in before)


def test_an_optimiser_goes_on_as_if_it_had_not_ended() -> None:
    layer, adam = layer_and_adam()
    step(layer, adam, 1.0)
    other, fresh = layer_and_adam()
    other.load_state_dict(layer.state_dict())
    put_state(fresh, other, take_state(adam, layer))
    step(layer, adam, 2.0)
    step(other, fresh, 2.0)
    assert torch.equal(layer.weight, other.weight) and torch.equal(layer.bias, other.bias)
    assert float(take_state(fresh, other)["weight/step"]) == 2


def test_a_key_is_half_of_eight_bytes_of_the_paths_digest() -> None:
    """`b2sum -l 64` of the text 3/'a'/'b'/1 is ac5dbc5f8bed9252."""
    assert Rng(3).child("a").key("b", 1) == Rng(3, ("a",)).key("b", 1) == 0xAC5DBC5F8BED9252 // 2
    assert Rng(3).key("a", "b", 1) == Rng(3).child("a", "b").key(1), "the path counts, not how it was made"
    assert len({Rng(3).key("ab"), Rng(3).key("a", "b"), Rng(4).key("ab"), Rng(3).key("ba")}) == 4
