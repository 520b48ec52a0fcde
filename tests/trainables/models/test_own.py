"""A network of a user's own: found in its file, cut into body and head, drawn by a seed, random in a way that can be
repeated, and refused with a sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from search_spaces.errors import UserError
from trainables import models, own_code
from trainables.params import equal, take

START = "import torch\nfrom torch import nn\n\n\n"
NET = (
    START
    + """class Net(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU())
        self.last = nn.Linear(32, classes)

    def forward(self, x):
        return self.last(self.body(x))
"""
)
IMAGES, VECTORS = (1, 8, 8), (64, 1, 1)


@pytest.fixture
def written(workplace: Path) -> Callable[[str], str]:
    """Writes a file and gives the model in it as a run records it."""

    def write(text: str) -> str:
        (workplace / "mynet.py").write_text(text)
        return models.named(str(workplace / "mynet.py") + ":Net")

    return write


def test_it_computes_what_the_class_computes(written: Callable[[str], str]) -> None:
    model = models.build(written(NET), IMAGES, 4)
    weights = take(model)
    x = torch.randn(5, 1, 8, 8)
    first = F.relu(F.linear(x.flatten(1), weights["body.body.1.weight"], weights["body.body.1.bias"]))
    torch.testing.assert_close(model.features(x), first)
    torch.testing.assert_close(model(x), F.linear(first, weights["head.weight"], weights["head.bias"]))
    assert model.feature_width == 32 and model.head.out_features == 4
    assert all(axis is None for axes in model.axes.values() for axis in axes) and model.axes.keys() == weights.keys()


def test_vectors_are_fed_flat(written: Callable[[str], str]) -> None:
    text = NET.replace("nn.Flatten(), ", "").replace("classes=10", "features, classes").replace("64", "features")
    model = models.build(written(text), VECTORS, 3)
    assert model(torch.randn(5, 64, 1, 1)).shape == (5, 3)


def test_weights_are_those_of_the_constructor_under_the_seed_given(written: Callable[[str], str]) -> None:
    text = NET.replace("    def forward", "        nn.init.normal_(self.last.weight, 3.0, 0.01)\n\n    def forward")
    name = written(text)
    one, same, other = (models.build(name, IMAGES, 4) for _ in range(3))
    before = torch.get_rng_state()
    for model, seed in ((one, 1), (same, 1), (other, 2)):
        models.initialise(model, torch.Generator().manual_seed(seed))
    assert torch.equal(before, torch.get_rng_state()), "the global generator is left alone"
    assert equal(take(one), take(same)) and not equal(take(one), take(other))
    assert 2.9 < float(one.head.weight.detach().mean()) < 3.1, "its own distribution is kept"


def test_the_head_is_named_or_the_last_linear_layer(written: Callable[[str], str]) -> None:
    text = (
        START
        + """class Net(nn.Module):
    head = "two"

    def __init__(self, classes):
        super().__init__()
        self.two = nn.Linear(64, classes)
        self.one = nn.Linear(64, 64)

    def forward(self, x):
        return self.two(torch.tanh(self.one(x.flatten(1))))
"""
    )
    model = models.build(written(text), IMAGES, 3)
    assert model.feature_width == 64 and model.head.out_features == 3
    own_code.forget()
    with pytest.raises(UserError, match=r"must end with its head.*goes on after Linear"):
        models.build(written(text.replace('    head = "two"\n', "")), IMAGES, 3)


def test_dropout_is_the_same_for_the_same_batch_and_no_other(written: Callable[[str], str]) -> None:
    model = models.build(written(NET.replace("nn.ReLU()", "nn.ReLU(), nn.Dropout(0.5)")), IMAGES, 4).train()
    x, y = torch.randn(2, 6, 1, 8, 8)
    first = model(x)
    torch.rand(3)  # what else draws from the global generator changes nothing
    assert torch.equal(model(x), first)
    dropped = (model.features(x) == 0) & (model.eval().features(x) != 0)
    assert dropped.any() and not torch.equal(
        dropped, (model.train().features(y) == 0) & (model.eval().features(y) != 0)
    )


def test_batch_normalisation_becomes_the_federations(written: Callable[[str], str]) -> None:
    name = written(NET.replace("nn.ReLU()", "nn.BatchNorm1d(32), nn.ReLU()"))
    x = torch.randn(9, 1, 8, 8)
    plain, running = models.build(name, IMAGES, 4), models.build(name, IMAGES, 4, batch_norm="running")
    assert not any(models.is_statistic(key) for key in take(plain))
    assert torch.equal(plain.train()(x), plain.eval()(x)), "by the batch's own statistics in evaluation too"
    hidden = F.linear(x.flatten(1), running.body.body[1].weight, running.body.body[1].bias)
    running.train()(x)
    torch.testing.assert_close(running.body.body[2].running_mean, 0.1 * hidden.mean(0))
    torch.testing.assert_close(running.body.body[2].running_var, 0.9 + 0.1 * hidden.var(0))
    models.initialise(running, torch.Generator().manual_seed(1))
    assert not running.body.body[2].running_mean.any() and running.body.body[2].running_var.eq(1).all()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (NET.replace("classes=10", "depth"), "must be made from arguments among classes.*got depth"),
        (NET.replace("classes=10", "").replace(", classes", ", 7"), r"must be logits of shape \(2, 4\).*got \(2, 7\)"),
        (NET.replace("nn.Linear(64", "nn.Linear(63"), r"cannot be fed samples of shape \(1, 8, 8\): RuntimeError"),
        (NET.replace("Net", "Other"), "must be one of the networks of .*mynet.py, got Net"),
        (NET + "\nraise ValueError('oh')\n", r"mynet.py cannot be run \(line 14\): ValueError: oh"),
        (NET + "\ndef f(:\n", r"mynet.py cannot be run \(line 14\): SyntaxError"),
    ],
)
def test_what_cannot_be_used_is_said_in_a_sentence(written: Callable[[str], str], text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        models.build(written(text), IMAGES, 4)


def test_it_cannot_be_made_narrower(written: Callable[[str], str]) -> None:
    with pytest.raises(UserError, match=r"rho must be 0 for the model mynet.py:Net"):
        models.build(written(NET), IMAGES, 4, rate=0.5)
