"""The LSTM computes what PyTorch's does, keeps whole units when it is narrowed, and trains in every executor."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from trainables import models

SHAPE, VOCABULARY = (7, 1, 1), 11


def drawn(seed: int, rate: float = 1.0, scaler: bool = False) -> tuple[models.Model, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    model = models.build("lstm", SHAPE, 3, rate, scaler, vocabulary=VOCABULARY)
    models.initialise(model, generator)
    return model, torch.randint(VOCABULARY, (5, *SHAPE), generator=generator).float()


def of_pytorch(model: models.Model) -> nn.LSTM:
    """PyTorch's layer with the same weights: there the rows of a gate stand together, here those of a unit."""
    own = model.state_dict()
    units = model.feature_width
    theirs = nn.LSTM(own["input.weight"].shape[1], units, batch_first=True).to(own["input.weight"].dtype)
    rows = [4 * unit + gate for gate in range(4) for unit in range(units)]  # both in the order i, f, g, o
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(own["input.weight"][rows])
        theirs.weight_hh_l0.copy_(own["recurrent.weight"][rows])
        theirs.bias_ih_l0.copy_(own["input.bias"][rows])
        theirs.bias_hh_l0.zero_()
    return theirs


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_it_computes_what_pytorchs_layer_does(rate: float) -> None:
    model, x = drawn(0, rate)
    assert (model.feature_width, model.state_dict()["embedding.weight"].shape[0]) == (64 if rate == 1 else 20, 11)
    out, _ = of_pytorch(model)(model.state_dict()["embedding.weight"][x.flatten(1).long()])
    torch.testing.assert_close(model.features(x), out[:, -1], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(model(x), model.head(out[:, -1]), rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("float64")
def test_a_narrow_one_is_the_first_units_of_the_whole() -> None:
    """Units beyond the narrow model's have no weight to or from the others in the whole one, whose first units then
    compute what the narrow model does: each row of a gate belongs to its unit."""
    narrow, x = drawn(1, 0.25)
    whole, _ = drawn(1)
    units, embedded = narrow.group_sizes["hidden"] // 4, narrow.group_sizes["embedding"] // 4
    with torch.no_grad():
        for name, tensor in whole.state_dict().items():
            small = narrow.state_dict()[name]
            tensor.zero_()
            tensor[tuple(slice(0, n) for n in small.shape)] = small
    assert narrow.axes["input.weight"] == (models.Axis("hidden", 4), models.Axis("embedding"))
    assert narrow.state_dict()["input.weight"].shape == (4 * units, embedded)
    torch.testing.assert_close(whole.features(x)[:, :units], narrow.features(x), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(whole(x), narrow(x), rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("float64")
def test_the_scaler_multiplies_what_enters_the_gates() -> None:
    model, x = drawn(2, 0.5, scaler=True)
    plain, _ = drawn(2, 0.5)
    plain.load_state_dict(model.state_dict())
    with torch.no_grad():
        for name in ("input.weight", "input.bias", "recurrent.weight"):
            plain.get_parameter(name).mul_(2)
    torch.testing.assert_close(model.train().features(x), plain.features(x), rtol=1e-12, atol=1e-12)
    assert not torch.equal(model.eval().features(x), plain.features(x))


@pytest.mark.usefixtures("float64")
def test_several_are_one_program() -> None:
    """As the executor vmap trains them: weights and tokens of several clients at once."""
    (one, x), (other, y) = drawn(3), drawn(4)
    weights = {name: torch.stack([one.state_dict()[name], other.state_dict()[name]]) for name in one.state_dict()}
    made = torch.func.vmap(lambda w, z: torch.func.functional_call(one, w, (z,)))(weights, torch.stack([x, y]))
    torch.testing.assert_close(made, torch.stack([one(x), other(y)]), rtol=1e-12, atol=1e-12)
