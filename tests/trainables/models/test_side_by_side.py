"""Several narrow models as one: logits, features and gradients are those of each by itself."""

from __future__ import annotations

import pytest
import torch

from trainables import models
from trainables.models.side_by_side import fit, lay, wide

SHAPE, CLASSES = (3, 16, 16), 5
SEPARABLE = [
    name for name in models.names() if not models.reads_tokens(name) and models.build(name, SHAPE, 5).separable
]


def test_who_keeps_channels_apart() -> None:
    """A model that mixes channels in any other way (attention, normalisation over channels) must not be among them."""
    assert SEPARABLE == [
        "cnn",
        "cnn2",
        "cnn3",
        "cnn_small",
        "lenet_code",
        "lenet_code_64",
        "resnet10",
        "resnet18",
        "resnet20",
        "resnet8",
    ]


@pytest.mark.parametrize(("kept", "scaler"), [("batch", False), ("running", True)])
@pytest.mark.parametrize("name", SEPARABLE)
def test_side_by_side_they_answer_as_each_by_itself(name: str, kept: str, scaler: bool) -> None:
    """In float64, so that blocks at a wrong place or another scale are no rounding; laid a second time, nothing is left
    of the models before."""
    parts = [models.build(name, SHAPE, CLASSES, 1 / 16, scaler, kept).double().eval() for _ in range(3)]
    made = wide(parts[0], 3).double().eval()
    x = torch.randn(4, *SHAPE, dtype=torch.float64, requires_grad=True)
    for _ in range(2):
        for part in parts:
            for tensor in part.state_dict().values():
                tensor.copy_(torch.rand_like(tensor) + 0.1)
        lay(made, parts)
        features = made.features(x)
        apart = [part.features(x) for part in parts]
        torch.testing.assert_close(features, torch.cat(apart, dim=1))
        logits, each = made.head(features), torch.cat([part(x) for part in parts], dim=1)
        torch.testing.assert_close(logits, each)
        slopes = torch.randn_like(each)
        torch.testing.assert_close(*(torch.autograd.grad((y * slopes).sum(), x)[0] for y in (logits, each)))


def test_only_models_whose_channels_add_up_to_a_width_fit() -> None:
    """LeNet's 6 channels are 1 at a sixteenth and 2 at a quarter; three of 7/16 are wider than the whole."""
    assert fit(models.build("cnn", SHAPE, 5, 1 / 16), 16) and not fit(models.build("cnn", SHAPE, 5, 1 / 16), 17)
    assert not fit(models.build("cnn", SHAPE, 5, 0.01), 2)
    assert not fit(models.build("lenet5", SHAPE, 5, 1 / 16), 4)
