"""Features that a run keeps: where they lie, and which generator and extractor they come from."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from search_spaces import kept_images as kept
from tests.trainables.simulation.test_kept_images import OF, SMALL
from trainables import models, registry
from trainables.building_blocks.split_model import body_of
from trainables.generators.feature import FeatureGenerator
from trainables.method import Painter
from trainables.params import put
from trainables.simulation.kept_features import principal, projected
from trainables.simulation.rounds import Simulation

FEATURE_METHODS = ("fedcg", "fedgen", "fedmdcg")


def made(method: str, toy: Path, **more: Any) -> Simulation:
    found = Simulation(method, {"dataset": str(toy), **SMALL, **OF[method], **more}, 0, torch.device("cpu"))
    found.keeps_images = True
    return found


def test_the_axes_are_those_of_a_singular_value_decomposition() -> None:
    random = np.random.default_rng(3)
    seen = random.normal(size=(40, 5)) * [1.0, 4.0, 0.5, 2.0, 0.1] + [3.0, 0.0, -1.0, 7.0, 2.0]
    centre, axes, share = principal(torch.from_numpy(seen))
    np.testing.assert_allclose(centre.numpy(), seen.mean(axis=0), atol=1e-12)
    _, values, rows = np.linalg.svd(seen - seen.mean(axis=0))
    for place in range(2):
        own = axes[:, place].numpy()
        assert abs(abs(own @ rows[place]) - 1) < 1e-10 and own[np.abs(own).argmax()] > 0
    np.testing.assert_allclose(share.numpy(), (values**2 / (values**2).sum())[:2], atol=1e-12)


@pytest.mark.parametrize("seen", [torch.zeros(4, 3), torch.ones(1, 3), torch.tensor([[1.0], [3.0]])])
def test_what_has_no_two_directions_is_a_line_or_a_point(seen: Tensor) -> None:
    centre, axes, share = principal(seen.double())
    assert axes.shape == (seen.shape[1], 2) and share.shape == (2,)
    placed = (seen.double() - centre) @ axes
    assert placed.isfinite().all() and not placed[:, 1].any() and share[1] == 0


def test_what_is_made_lies_on_the_plane_of_what_is_seen(toy: Path) -> None:
    """An extractor of the image's mean and first pixel and zeros: the plane is that of these two, turned at most."""
    built = Simulation("fedavg", {"dataset": str(toy), **SMALL}, 0, torch.device("cpu"))

    def observe(images: Tensor) -> Tensor:
        flat = images.flatten(1)
        return torch.stack([flat.mean(dim=1), flat[:, 0], torch.zeros(len(flat))], dim=1)

    def paint(z: Tensor, y: Tensor) -> Tensor:
        return torch.stack([y.float(), 2.0 * y, 5.0 + z[:, 0]], dim=1)

    found = projected(built.fed, built.data, Painter(3, paint, observe=observe))
    chosen = found[f"{kept.FEATURES}_seen"] / kept.FIXED
    assert len(chosen) == len(built.data.test.y) <= kept.POINTS
    assert sorted(found[f"{kept.FEATURES}_labels"].tolist()) == sorted(built.data.test.y.tolist())
    # Distances between points are kept, as the third direction is empty.
    images = built.data.batch(built.data.test, torch.arange(len(built.data.test.y)))
    seen = observe(images).double()
    np.testing.assert_allclose(
        np.sort((chosen**2).sum(axis=1)), np.sort((seen - seen.mean(dim=0)).square().sum(dim=1).numpy()), atol=1e-2
    )
    points = found[kept.FEATURES] / kept.FIXED
    assert points.shape == (built.fed.classes, kept.DOTS, 2)
    # A class is one point, as what differs within it is the third entry; next to it lies one at (1, 2).
    assert np.ptp(points, axis=1).max() < 2e-3
    steps = np.linalg.norm(np.diff(points[:, 0], axis=0), axis=1)
    np.testing.assert_allclose(steps, np.sqrt(5.0), atol=3e-3)
    assert found[f"{kept.FEATURES}_share"].sum() == pytest.approx(kept.FIXED, abs=1)


def test_which_methods_have_which_generators() -> None:
    able = {name for name in registry.methods() if registry.method(name).painters is not None}
    assert able == {"dense", "dfrd", "dhf", "fedftg", "fedkf", *FEATURE_METHODS}


def own_of(built: Simulation, method: str) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Generator and extractor that are to be shown, read from what the round has left."""
    state: Any = built.progress.state
    clients: Any = built.progress.client_states
    first = clients[min(clients)] if clients else None
    if method == "fedgen":
        return state.generator, body_of(state.model)
    return (first.generator if method == "fedmdcg" else state.generator), first.body


@pytest.mark.parametrize("noise", ["normal", "uniform"])
@pytest.mark.parametrize("method", FEATURE_METHODS)
def test_generator_and_extractor_are_those_of_the_round(method: str, noise: str, toy: Path) -> None:
    built = made(method, toy, noise=noise)
    built.run_round()
    painter = registry.method(method).painters(  # type: ignore[misc]
        built.config, built.fed, built.progress.state, built.progress.client_states
    )[kept.FEATURES]
    generator, body = own_of(built, method)
    hidden = (built.config.gen_hidden,) if method == "fedgen" else (512, 256)
    making = FeatureGenerator(built.fed.network().feature_width, built.fed.classes, 8, hidden).eval()
    put(making, generator)
    z, y = torch.randn(5, 8, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 1, 2, 0, 1])
    drawn = z if noise == "normal" else torch.distributions.Normal(0.0, 1.0).cdf(z)
    assert painter.noise_dim == 8 and painter.judge is None
    torch.testing.assert_close(painter.paint(z, y), making(drawn, y))
    module = models.build(built.fed.model, built.fed.shape, built.fed.classes)
    put(module, {**{k: v for k, v in built.fed.initial_params().items() if k.startswith("head.")}, **body})
    images = built.data.batch(built.data.test, torch.arange(6))
    assert painter.observe is not None
    torch.testing.assert_close(painter.observe(images), module.eval().features(images))
    assert sorted(built.kept_images) == [f"features{part}" for part in ("", "_labels", "_seen", "_share")]


def test_fedgen_with_own_extractors_shows_that_of_a_client(toy: Path) -> None:
    built = made("fedgen", toy, share="head")
    assert not registry.method("fedgen").painters(  # type: ignore[misc]
        built.config, built.fed, built.progress.state, built.progress.client_states
    )
    built.run_round()
    clients: Any = built.progress.client_states
    images = built.data.batch(built.data.test, torch.arange(6))
    painter = registry.method("fedgen").painters(  # type: ignore[misc]
        built.config, built.fed, built.progress.state, clients
    )[kept.FEATURES]
    module = models.build(built.fed.model, built.fed.shape, built.fed.classes)
    put(module, {**built.fed.initial_params(), **clients[min(clients)].body})
    assert painter.observe is not None
    torch.testing.assert_close(painter.observe(images), module.eval().features(images))


@pytest.mark.parametrize("method", ["fedcg", "fedmdcg"])
def test_before_a_client_has_trained_there_is_nothing_to_show(method: str, toy: Path) -> None:
    built = made(method, toy)
    painters = registry.method(method).painters
    assert painters is not None and not painters(built.config, built.fed, built.progress.state, {})


def test_noise_and_test_images_are_the_same_in_every_round(toy: Path) -> None:
    built = made("fedgen", toy)
    painter = Painter(4, lambda z, y: z[:, :3] + y[:, None], observe=lambda images: images.flatten(1)[:, :3])
    one, other = (projected(built.fed, built.data, dataclasses.replace(painter)) for _ in range(2))
    assert all(np.array_equal(one[name], other[name]) for name in one)
