"""Frozen teachers of several widths: the order of their answers, and which are asked together."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.contracts.test_methods import CPU, values_for
from trainables import models
from trainables.building_blocks.teachers import Teachers
from trainables.models import abreast
from trainables.params import pack, take
from trainables.simulation.rounds import Simulation
from trainables.wire import Upload

WIDTHS = (1 / 16, 1 / 2, 1 / 16, 1 / 8, 1 / 16, 1 / 8, 1 / 16, 1 / 16)


@pytest.mark.parametrize(
    ("apart", "largest", "asked"),
    [
        (False, 1 << 13, [[0, 2, 4, 6, 7, 1, 3, 5]]),
        (False, 0, [[0, 2, 4, 6], [7], [1], [3, 5]]),
        (True, 1 << 13, [[place] for place in range(8)]),
    ],
)
def test_each_answers_in_the_order_of_the_uploads(
    apart: bool, largest: int, asked: list[list[int]], toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients of three widths, none beside its like: each has its own weights and its own τ, in a second round too,
    whose modules are those of the first."""
    monkeypatch.setattr(abreast, "LARGEST", largest)
    fed = Simulation("dfrd", values_for("dfrd", toy), 3, CPU).fed
    generator = torch.Generator().manual_seed(0)
    made = [models.build("cnn_small", fed.shape, fed.classes, width).eval() for width in WIDTHS]
    for _ in range(2):
        for module in made:
            models.initialise(module, generator)
        uploads = [Upload(place, pack("model", take(module))) for place, module in enumerate(made)]
        teachers = Teachers(
            fed,
            uploads,
            lambda client, role: fed.cached(role, lambda: fed.built("cnn_small", WIDTHS[client])),
            apart=apart,
        )
        assert [places for _, places in teachers._asked] == asked
        x, weights = torch.randn(4, *fed.shape, generator=generator), torch.rand(8, 4, generator=generator)
        each = torch.stack([module(x) for module in made])
        torch.testing.assert_close(teachers.each(x), each)
        torch.testing.assert_close(teachers.logits(x, weights), torch.einsum("sb,sbc->bc", weights, each))


def test_features_are_weighted_like_logits(toy: Path) -> None:
    """Four models of one width, asked as one."""
    fed = Simulation("dfrd", values_for("dfrd", toy), 3, CPU).fed
    made = [models.build("cnn2", fed.shape, fed.classes, 1 / 16).eval() for _ in range(4)]
    for place, module in enumerate(made):
        models.initialise(module, torch.Generator().manual_seed(place))
    uploads = [Upload(place, pack("model", take(module))) for place, module in enumerate(made)]
    teachers = Teachers(fed, uploads, lambda client, role: fed.cached(role, lambda: fed.built("cnn2", 1 / 16)))
    assert [places for _, places in teachers._asked] == [[0, 1, 2, 3]]
    x, weights = torch.randn(3, *fed.shape), torch.rand(4, 3)
    features, logits = teachers.features_and_logits(x, weights)
    torch.testing.assert_close(
        features, torch.einsum("sb,sbp->bp", weights, torch.stack([m.features(x) for m in made]))
    )
    torch.testing.assert_close(logits, torch.einsum("sb,sbc->bc", weights, torch.stack([m(x) for m in made])))
