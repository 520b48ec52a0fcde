"""Sub-models: which channels a client has, how precisely they are merged, and that clients do not share weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.contracts.test_methods import values_for
from trainables import models
from trainables.building_blocks import submodels
from trainables.building_blocks.submodels import Part
from trainables.federation import Federation, budgets
from trainables.methods import feddropout, fedrolex, heterofl
from trainables.params import put, take
from trainables.simulation.rounds import Simulation


def federation(model: str = "cnn_small", widths: tuple[float, ...] = (1.0, 0.5, 0.25)) -> Federation:
    shape = (1, 8, 8) if model == "cnn_small" else (3, 32, 32)
    return Federation(
        seed=0,
        clients=3,
        sizes=(10, 20, 30),
        classes=4,
        shape=shape,
        mean=(0.5,),
        std=(0.5,),
        model=model,
        widths=widths,
        rounds=4,
    )


@pytest.mark.parametrize(
    ("rho", "expected"),
    [
        (5, [1, 1 / 2, 1 / 2, 1 / 4, 1 / 4, 1 / 8, 1 / 8, 1 / 16, 1 / 16, 1 / 16]),
        (10, [1 / 2, 1 / 4, 1 / 8] + [1 / 16] * 7),
        (40, [1 / 16] * 10),
        (0, [1.0] * 10),
    ],
)
def test_budgets(rho: int, expected: list[float]) -> None:
    """The three budget rows that DFRD's experiments use (N = 10, σ = 4), and no spread."""
    assert list(budgets(10, rho, 4)) == expected


def test_which_channels_each_extraction_takes() -> None:
    fed = federation()
    static, rolling, late = (
        m.channels(fed, t, 2)["conv1"].tolist() for m, t in ((heterofl, 5), (fedrolex, 3), (fedrolex, 60))
    )
    assert static == list(range(16))
    assert rolling == list(range(2, 18))
    assert late == [(i + 59) % 64 for i in range(16)]
    backward = [fedrolex.channels(fed, t, 2, "backward")["conv1"].tolist() for t in (1, 3, 60)]
    assert backward == [list(range(16)), [(i - 2) % 64 for i in range(16)], [(i - 59) % 64 for i in range(16)]]
    random = feddropout.channels(fed, 1, 2)["conv1"]
    assert len(random.unique()) == 16 and int(random.max()) < 64
    assert not torch.equal(random, feddropout.channels(fed, 2, 2)["conv1"])
    assert torch.equal(random, feddropout.channels(fed, 1, 2)["conv1"])
    assert feddropout.channels(fed, 1, 0)["conv1"].tolist() == list(range(64))


def test_a_share_of_channels_is_rounded_up() -> None:
    """Of LeNet's groups, at 0.55: 3.3, 8.8, 66 and 46.2 channels."""
    fed = federation("lenet5", (0.55, 1.0, 1.0))
    sizes, chosen = fed.network().group_sizes, heterofl.channels(fed, 1, 0)
    assert {n: len(chosen[group]) for group, n in sizes.items()} == {6: 4, 16: 9, 120: 66, 84: 47}


def test_the_direction_of_the_window_is_more_than_a_name_where_widths_differ() -> None:
    """Forward all clients leave the channel at which their windows began; backward none does."""
    fed = federation()
    clients = [c for c in range(3) if fed.widths[c] < 1]
    assert len({fed.widths[c] for c in clients}) > 1
    for roll, kept in (("forward", 0), ("backward", len(clients))):
        now, later = ([set(fedrolex.channels(fed, t, c, roll)["conv1"].tolist()) for c in clients] for t in (4, 5))
        began = {fedrolex.channels(fed, 4, c, roll)["conv1"].tolist()[0] for c in clients}
        assert len(began) == 1 and all(began < window for window in now)
        assert sum(began < window for window in later) == kept


@pytest.mark.parametrize("model", [name for name in models.names() if not models.reads_tokens(name)])
@pytest.mark.parametrize("method", [heterofl, feddropout, fedrolex])
def test_extracted_tensors_fit_the_narrow_model_and_merging_them_back_changes_nothing(model: str, method: Any) -> None:
    fed = federation(model, (1.0, 0.5, 0.0625))
    full = fed.initial_params()
    parts = []
    for client in range(3):
        chosen = method.channels(fed, 2, client)
        part = submodels.extract(fed, full, chosen)
        put(fed.network(fed.widths[client]), part)  # raises where names or shapes do not fit
        parts.append(Part(chosen, part, float(fed.sizes[client])))
    merged = submodels.merge(fed, full, parts)
    for name in full:
        np.testing.assert_allclose(merged[name].numpy(), full[name].numpy(), rtol=1e-6, atol=1e-9)


def test_sums_of_an_average_run_in_float64() -> None:
    """2²⁴ + 1 + 1 is 2²⁴ where every sum is rounded to float32; a third of the exact sum is a whole number."""
    fed = federation(widths=(1.0, 1.0, 1.0))
    full = fed.initial_params()
    chosen = heterofl.channels(fed, 1, 0)
    parts = [Part(chosen, {k: torch.full_like(v, value) for k, v in full.items()}, 1.0) for value in (2.0**24, 1, 1)]
    assert float(submodels.merge(fed, full, parts)["head.bias"][0]) == (2**24 + 2) / 3 == 5592406


def test_weights_and_products_of_an_average_are_float64_as_well() -> None:
    """To the last bit, with weights that no float32 holds; one client of full width, two of half."""
    fed = federation(widths=(1.0, 0.5, 0.5))
    full, weights = fed.initial_params(), (0.1, 0.7, 0.3)
    chosen = [heterofl.channels(fed, 1, client) for client in range(3)]
    trained = [submodels.extract(fed, fed.initial_params("trained", i), c) for i, c in enumerate(chosen)]
    merged = submodels.merge(fed, full, map(Part, chosen, trained, weights))["convs.0.weight"]
    total, held = np.zeros(merged.shape), np.zeros(merged.shape)
    for part, weight in zip(trained, weights, strict=True):
        values = part["convs.0.weight"].numpy().astype(np.float64)
        total[: len(values)] += weight * values
        held[: len(values)] += weight
    np.testing.assert_array_equal(merged.numpy(), (total / held).astype(np.float32))


def test_rows_of_classes_belong_to_the_last_of_several_linear_layers() -> None:
    fed = federation("lenet5", widths=(1.0, 1.0, 1.0))
    full, chosen = fed.initial_params(), heterofl.channels(fed, 1, 0)
    owned = torch.tensor([True, True, False, False])
    parts = [Part(chosen, {k: torch.full_like(v, value) for k, v in full.items()}, 1.0, owned) for value in (2.0, 4.0)]
    merged = submodels.merge(fed, full, parts)
    apart = {name for name, tensor in merged.items() if not bool((tensor == 3).all())}
    assert apart == {"head.2.weight", "head.2.bias"}


@pytest.mark.parametrize("repeat", [1, 2, 3])
def test_a_channel_of_several_inputs_takes_all_of_them(repeat: int) -> None:
    """A flattened map gives every channel `repeat` neighbouring inputs of the linear layer behind it."""
    expected = [channel * repeat + i for channel in (0, 2, 3) for i in range(repeat)]
    found = submodels._positions(torch.tensor([0, 2, 3]), repeat, 5)
    assert found is not None and found.tolist() == expected
    assert submodels._positions(torch.arange(5), repeat, 5) is None


def test_clients_do_not_train_on_each_others_weights(toy: Path) -> None:
    """Two clients with the same data and draws end at the same weights, whichever trained first."""
    simulation = Simulation("fedavg", values_for("fedavg", toy, model="mlp"), 0, torch.device("cpu"))
    m, config, fed, state = simulation.method, simulation.config, simulation.fed, simulation.progress.state
    data, rng = simulation.data.clients[0], fed.rng.child("same")
    payload = m.download(config, fed, state, 0)
    first = m.client(config, fed, payload, None, data, rng)
    m.client(config, fed, payload, None, simulation.data.clients[1], rng)
    twin = m.client(config, fed, payload, None, replace(data), rng)
    assert all(torch.equal(first.upload[k], twin.upload[k]) for k in twin.upload)
    assert all(torch.equal(state.model[k], payload[f"model/{k}"]) for k in state.model)
    before = take(fed.network())
    first.upload["model/head.bias"].add_(1.0)
    assert torch.equal(before["head.bias"], take(fed.network())["head.bias"])
