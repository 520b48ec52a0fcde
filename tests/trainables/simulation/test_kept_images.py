"""Images that a run keeps: what is in them, and that keeping them changes nothing."""

from __future__ import annotations

import dataclasses
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from search_spaces import kept_images as kept
from tests.contracts.test_methods import same
from tests.trainables.jobs import complete, job_of, untimed_rows
from trainables import models, registry
from trainables.building_blocks.split_model import body_of
from trainables.data import load
from trainables.federation import Federation
from trainables.generators.feature import FeatureGenerator
from trainables.method import Painter
from trainables.params import put
from trainables.simulation import client_files, kept_images
from trainables.simulation.kept_images import principal, projected
from trainables.simulation.rounds import Simulation
from trainables.tune import Trial
from trainables.worker import trial_folder

SMALL = {"rounds": 2, "clients": 3, "local_steps": 2, "batch_size": 16, "model": "lenet5", "partition": "iid"}
OF = {
    "dfrd": {"server_iters": 1, "gen_steps": 1, "distill_steps": 1, "server_batch_size": 8, "noise_dim": 8},
    "dense": {
        "server_iters": 1,
        "gen_steps": 1,
        "distill_steps": 1,
        "server_batch_size": 8,
        "merge_op": "none",
        "beta_bn": 0.0,
    },
    "dhf": {
        "server_iters": 1,
        "gen_steps": 1,
        "distill_steps": 1,
        "server_batch_size": 8,
        "gme_interval": 1,
        "model": "cnn2",
    },
    "fedkf": {"noise_dim": 8, "kd_from_round": 1},
    "fedmdcg": {"server_steps": 1, "noise_dim": 8},
    "fedcg": {"server_steps": 1, "noise_dim": 8},
    "fedgen": {"gen_steps": 1, "noise_dim": 8},
}


def trial(folder: Path, toy: Path, method: str, images: bool, seeds: tuple[int, ...] = (0,)) -> Trial:
    values: dict[str, Any] = {"dataset": str(toy), **SMALL, **OF[method]}
    return Trial({"job": job_of(folder, method, values, seeds, keep_images=images)})


def images(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("images-*"))}


@pytest.mark.parametrize("method", OF)
def test_a_run_gives_the_same_bits_whether_it_keeps_images_or_not(tmp_path: Path, toy: Path, method: str) -> None:
    complete(trial(tmp_path / "with", toy, method, True))
    complete(trial(tmp_path / "without", toy, method, False))
    assert untimed_rows(tmp_path / "with") == untimed_rows(tmp_path / "without")
    with_, without = (torch.load(tmp_path / one / "checkpoint", weights_only=True) for one in ("with", "without"))
    assert same(with_, without)
    kept = [client_files.read(tmp_path / one, with_["clients"]) for one in ("with", "without")]
    assert same(*kept)
    assert sorted(images(tmp_path / "with")) == ["images-0-0001.npz", "images-0-0002.npz", "images-0-data.npz"]
    assert not images(tmp_path / "without")


@pytest.mark.parametrize(
    ("method", "dataset"), [("dfrd", None), ("fedkf", None), ("fedmdcg", None), ("fedkf", "digits")]
)
def test_a_trial_that_goes_on_leaves_the_same_files(
    tmp_path: Path, toy: Path, method: str, dataset: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_folder, "between_checkpoints", lambda cost: 0.0)
    of = toy if dataset is None else Path(dataset)
    complete(trial(tmp_path / "whole", of, method, True, (0, 1)))
    cut = trial(tmp_path / "cut", of, method, True, (0, 1))
    cut.step()
    cut.cleanup()
    (tmp_path / "cut" / "images-0-0002.npz").write_bytes(b"what a kill before the checkpoint leaves")
    (tmp_path / "cut" / "images-1-data.npz").unlink()
    complete(trial(tmp_path / "cut", of, method, True, (0, 1)))
    with np.load(tmp_path / "cut" / "images-1-data.npz") as found:
        assert ("data" in found.files) == (dataset is not None)
    assert images(tmp_path / "cut") == images(tmp_path / "whole")
    assert len(images(tmp_path / "whole")) == 6


def test_dfrd_shows_the_average_beside_the_generator(tmp_path: Path, toy: Path) -> None:
    complete(trial(tmp_path / "t", toy, "dfrd", True))
    with np.load(tmp_path / "t" / "images-0-0002.npz") as found:
        names = sorted(found.files)
        classes, channels, height, width = found["generator_mean"].shape
        assert found["ema"].shape == (classes, kept.IMAGES, channels, height, width)
        assert (found["generator"] != found["ema"]).any()
        assert set(found["generator_count"].tolist()) == {kept.POOL}
    assert names == ["ema", "ema_count", "ema_mean", "generator", "generator_count", "generator_mean"]


@pytest.fixture
def fed() -> Federation:
    return Federation(0, 2, (5, 5), 3, (1, 1, 2), (0.5,), (0.25,), "lenet5", (1.0, 1.0), 1)


def test_pixels_undo_the_normalisation(fed: Federation) -> None:
    # x · 0.25 + 0.5: -2 is black, 0 is grey, 2 is white; beyond is clipped, and what is no number is black.
    seen = torch.tensor([-2.0, 0.0, 2.0, 9.0, -9.0, math.nan]).view(3, 1, 1, 2)
    assert kept_images.pixels(fed, seen).flatten().tolist() == [0, 128, 255, 255, 0, 0]


def test_of_a_generator_with_labels_each_class_has_its_own(fed: Federation) -> None:
    def paint(z: Tensor, y: Tensor) -> Tensor:
        # A class is one grey level, 0.5 + 0.25 · (y - 1), whatever the noise.
        return (y.float() - 1).view(-1, 1, 1, 1).expand(-1, 1, 1, 2)

    found = kept_images.painted(fed, {"generator": Painter(4, paint)})
    assert found["generator"].shape == (3, kept.IMAGES, 1, 1, 2)
    assert [set(found["generator"][c].flatten().tolist()) for c in range(3)] == [{64}, {128}, {191}]
    assert found["generator_mean"][:, 0, 0, 0].tolist() == [64, 128, 191]


def test_of_a_generator_without_labels_the_judge_sorts(fed: Federation) -> None:
    def paint(z: Tensor, y: Tensor) -> Tensor:
        return z[:, :1].sign().view(-1, 1, 1, 1).expand(-1, 1, 1, 2)

    def judge(seen: Tensor) -> Tensor:
        return torch.where(seen[:, 0, 0, 0] > 0, 2, 0)

    found = kept_images.painted(fed, {"generator": Painter(4, paint, judge)})
    count = found["generator_count"].tolist()
    assert sum(count) == 3 * kept.POOL and count[1] == 0 and min(count[0], count[2]) > kept.IMAGES
    assert set(found["generator"][0].flatten().tolist()) == {64}
    assert set(found["generator"][2].flatten().tolist()) == {191}
    assert not found["generator"][1].any() and not found["generator_mean"][1].any()


@pytest.mark.parametrize("method", ["dfrd", "dhf"])
def test_the_judge_is_the_global_model_in_a_module_of_its_own(toy: Path, method: str) -> None:
    values = {"dataset": str(toy), **SMALL, **OF[method], "merge_op": "none"}
    s = Simulation(method, values, 0, torch.device("cpu"))
    s.run_round()
    model, trained_in = s.global_model(), s.method.global_network(s.config, s.fed)
    assert model is not None and s.method.painters is not None
    zeros = {name: torch.zeros_like(tensor) for name, tensor in model.items()}
    put(trained_in, zeros)
    judge = s.method.painters(s.config, s.fed, s.progress.state, {})["generator"].judge
    assert judge is not None
    x = torch.randn(64, *s.fed.shape, generator=torch.Generator().manual_seed(0))
    found = judge(x)
    assert same(dict(trained_in.state_dict()), zeros)
    put(trained_in, model)
    expected = trained_in.eval()(x).argmax(dim=1)
    assert torch.equal(found, expected) and expected.any(), "without weights all images are of class 0"


def test_noise_is_the_same_in_every_round(fed: Federation) -> None:
    seen = []

    def paint(z: Tensor, y: Tensor) -> Tensor:
        seen.append(z)
        return torch.zeros(len(z), 1, 1, 2)

    for _ in range(2):
        kept_images.painted(fed, {"generator": Painter(4, paint)})
    half = len(seen) // 2
    assert all(torch.equal(a, b) for a, b in zip(seen[:half], seen[half:], strict=True))


def test_the_mean_of_the_data_leaves_out_classes_of_few_images(toy: Path) -> None:
    made = Simulation("fedavg", {"dataset": str(toy), **SMALL}, 0, torch.device("cpu"))
    found = made.images_of_data()
    counts = made.data.counts.sum(dim=0).tolist()
    assert found["data_count"].tolist() == counts
    for label, number in enumerate(counts):
        own = [client.images[client.indices[client.y == label]] for client in made.data.clients]
        expected = torch.cat(own).double().mean(dim=0).round().numpy()
        if number < kept.LEAST:
            expected = np.zeros_like(expected)
        np.testing.assert_array_equal(found["data_mean"][label], expected)


def of_data(dataset: str, **changes: Any) -> dict[str, Any]:
    return dict(Simulation("fedavg", {"dataset": dataset, **SMALL, **changes}, 0, torch.device("cpu")).images_of_data())


@pytest.mark.parametrize("changes", [{}, {"client_test_fraction": 0.25}], ids=["", "clients keep samples to test on"])
def test_of_a_data_set_known_by_name_its_first_test_images_are_kept(changes: dict[str, Any]) -> None:
    found, source = of_data("digits", **changes), load("digits")
    assert found["data"].shape == (10, kept.IMAGES, *source.shape) and found["data"].dtype == np.uint8
    for label in range(10):
        own = source.test_x[source.test_y == label]
        np.testing.assert_array_equal(found["data"][label], own[: kept.IMAGES])
        assert len(own) > kept.IMAGES, "else the test does not show that these are the first"


def test_of_a_users_own_data_no_image_is_kept(toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sorted(of_data(str(toy))) == ["data_count", "data_mean"]
    monkeypatch.chdir(tmp_path)
    shutil.copy(toy, "digits.npz")
    shutil.copytree(folder_of_images(tmp_path / "photos"), "digits")
    for named_alike in ("digits.npz", "./digits"):
        assert sorted(of_data(named_alike)) == ["data_count", "data_mean"]


def folder_of_images(root: Path) -> Path:
    for label in ("cat", "dog"):
        (root / label).mkdir(parents=True)
        for k in range(40):
            Image.fromarray(np.full((8, 8), 5 * k, dtype=np.uint8)).save(root / label / f"{k}.png")
    return root


def test_test_images_that_clients_hold_are_not_kept() -> None:
    changes = {"partition": "dir_pfl", "client_test_fraction": 0.25}
    assert sorted(of_data("digits", **changes)) == ["data_count", "data_mean"]


def test_points_of_a_plane_are_no_images() -> None:
    assert "data" not in of_data("moons", model="mlp")


def test_each_class_shows_as_many_test_images_as_the_smallest_has() -> None:
    made = Simulation("fedavg", {"dataset": "digits", **SMALL}, 0, torch.device("cpu"))
    y = made.data.public_test_y
    assert y is not None
    few = y.clone()
    places = (y == 4).nonzero().squeeze(1)
    few[places[3:]] = 5
    found = kept_images.of_data(made.fed, replace(made.data, public_test_y=few))["data"]
    assert len(found) == 10 and found.shape[1] == 3
    np.testing.assert_array_equal(found[4], made.data.images.test[places[:3]])
    few[places] = 5
    assert "data" not in kept_images.of_data(made.fed, replace(made.data, public_test_y=few))


@pytest.mark.parametrize(
    ("classes", "shape"), [(10, (1, 8, 8)), (10, (3, 32, 32)), (200, (3, 64, 64)), (100, (3, 224, 224)), (2, (2, 1, 1))]
)
def test_no_source_is_larger_than_it_may_be(classes: int, shape: tuple[int, int, int]) -> None:
    first, images = kept.kept_of(classes, shape)
    assert 1 <= first <= min(classes, kept.CLASSES) and images >= 1
    assert first * (images + 1) * math.prod(shape) <= kept.BYTES


def test_names_of_files() -> None:
    assert kept.name_of(1000000000, 7) == "images-1000000000-0007.npz"
    assert kept.of_name("images-1000000000-0007.npz") == (1000000000, 7)
    assert kept.of_name(kept.name_of(3, None)) == (3, None)
    assert kept.of_name("images-3-../x.npz") is None and kept.of_name("model-3.safetensors") is None


def test_of_points_of_a_plane_the_models_predictions_are_kept(tmp_path: Path) -> None:
    values: dict[str, Any] = {"dataset": "moons", **SMALL, "model": "mlp", "local_steps": 30, "lr": 0.3}
    made = Simulation("fedavg", values, 0, torch.device("cpu"))
    made.keeps_images = True
    made.run_round()
    found, data = made.kept_images, made.images_of_data()
    assert sorted(found) == ["plane", "teacher"]
    assert found["plane"].shape == found["teacher"].shape == (kept.SIDE, kept.SIDE)
    # Row and column of a training sample are those of its pixel values: second and first.
    model = made.global_model()
    assert model is not None
    module = made._loaded(model)
    points = torch.as_tensor(data["data_points"])
    own = module.eval()((points.float().view(-1, 2, 1, 1) / 255 - 0.5) / 0.5).argmax(dim=1).numpy()
    step = 255 / (kept.SIDE - 1)
    column, row = (np.rint(data["data_points"] / step).astype(int)).T
    # Between two grid points a boundary may run.
    assert (found["plane"][row, column] == own).mean() > 0.97
    assert set(own.tolist()) == {0, 1}, "else the test shows nothing"


def test_the_local_models_are_mixed_by_their_weights(fed: Federation) -> None:
    class Side(torch.nn.Module):
        """Class 0 or 1 with a probability that depends on the first value alone."""

        def __init__(self, sure: float) -> None:
            super().__init__()
            self.sure = sure

        def forward(self, x: Tensor) -> Tensor:
            first = (self.sure * x[:, 0, 0, 0]).view(-1, 1)
            return torch.cat([-first, first], dim=1)

    made = Simulation("fedavg", {"dataset": "moons", **SMALL, "model": "mlp"}, 0, torch.device("cpu"))
    one, other = Side(1.0), Side(-1.0)
    for weights, expected in (((3.0, 1.0), 1), ((1.0, 3.0), 0)):
        found = kept_images.plane(made.fed, made.data, zip((one, other), weights, strict=True))
        assert (found[:, -1] == expected).all() and (found[:, 0] == 1 - expected).all()


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
