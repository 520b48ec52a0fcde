"""Averages of named tensors."""

from __future__ import annotations

import torch

from trainables.params import average


def test_an_average_is_weighted_and_takes_whole_numbers_from_the_first() -> None:
    many = [{"w": torch.tensor([1.0, 8.0]), "batches": torch.tensor(count)} for count in (3, 5, 9)]
    for place, params in enumerate(many):
        params["w"] = params["w"] * (place + 1)
    found = average(zip(many, (1.0, 2.0, 5.0), strict=True))
    assert found["w"].tolist() == [(1 + 4 + 15) / 8, 8 * (1 + 4 + 15) / 8] and found["w"].dtype == torch.float32
    assert int(found["batches"]) == 3
