"""CNNs of several widths that walk abreast: logits, features and gradients are those of each by itself."""

from __future__ import annotations

import pytest
import torch

from trainables import models
from trainables.models import abreast
from trainables.models.abreast import Abreast, fit

WIDTHS = (1 / 2, 1 / 16, 1 / 8, 1 / 16)


@pytest.mark.parametrize(("name", "shape"), [("cnn_small", (1, 8, 8)), ("cnn", (3, 9, 8)), ("cnn_small", (2, 4, 4))])
def test_abreast_they_answer_as_each_by_itself(name: str, shape: tuple[int, int, int]) -> None:
    """In float64, so that a channel at a wrong place is no rounding. One weight of normalisation is negative, where the
    largest of four values is not the largest after it."""
    parts = [models.build(name, shape, 5, width).double().eval().requires_grad_(False) for width in WIDTHS]
    generator = torch.Generator().manual_seed(0)
    for part in parts:
        for tensor in part.state_dict().values():
            tensor.copy_(torch.randn(tensor.shape, generator=generator).double())
    x = torch.randn(4, *shape, generator=generator).double().requires_grad_()
    assert fit(parts)
    made = Abreast(parts)
    features, apart = made.features(x), torch.cat([part.features(x) for part in parts], dim=1)
    torch.testing.assert_close(features, apart)
    logits, each = made(x), torch.cat([part(x) for part in parts], dim=1)
    torch.testing.assert_close(logits, each)
    torch.testing.assert_close(made.head(features), each)
    slopes = torch.randn(each.shape, generator=generator).double()
    torch.testing.assert_close(*(torch.autograd.grad((y * slopes).sum(), x)[0] for y in (logits, each)))
    with torch.no_grad():
        torch.testing.assert_close(made(x), each)


def test_who_fits() -> None:
    """Several CNNs of one architecture, without running statistics, whose first maps hold 2^13 values an image."""
    half, narrow = (models.build("cnn_small", (1, 8, 8), 5, width) for width in (1 / 2, 1 / 16))
    assert fit([half, narrow]) and not fit([half])
    assert not fit([half, models.build("cnn", (1, 8, 8), 5, 1 / 16)])
    assert not fit([half, models.build("cnn_small", (1, 8, 8), 5, 1 / 16, batch_norm="running")])
    assert not fit([models.build("cnn2", (1, 28, 28), 5, 1 / 16) for _ in range(2)])
    wide = [models.build("cnn_small", (1, 16, 16), 5, 1 / 4) for _ in range(3)]
    assert abreast.LARGEST == 2 * 16 * 16 * 16 and fit(wide[:2]) and not fit(wide)
