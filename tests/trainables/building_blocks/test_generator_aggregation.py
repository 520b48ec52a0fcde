"""The server's aggregation of generators and classifiers (FedMD-CG Eqs. 10 to 12, FedCG's step), against NumPy; feature
generators; optimiser state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.contracts.test_methods import simulate, values_for
from tests.trainables.building_blocks.test_losses import random, softmax
from tests.trainables.methods.test_dfrd import kl
from trainables.building_blocks import generator_aggregation
from trainables.building_blocks.generator_aggregation import (
    GeneratorAggregation,
    aggregate,
    draw_noise,
    kd_loss,
    kdc_losses,
    ramp,
)
from trainables.building_blocks.split_model import body_of, head_of
from trainables.generators.feature import FeatureGenerator, initialise
from trainables.simulation.rounds import Simulation
from trainables.wire import Upload

TAU = torch.tensor([[0.1, 0.5, 0.0, 1.0], [0.9, 0.5, 1.0, 0.0]], dtype=torch.float64)


def linear(seed: int) -> nn.Linear:
    layer = nn.Linear(3, 4).double()
    with torch.no_grad():
        layer.weight.copy_(random(4, 3, seed=seed))
        layer.bias.copy_(random(4, seed=seed + 1))
    return layer


def test_kd_loss_is_fedcgs_step() -> None:
    rho, logits, shares = random(2, 5, 4), random(5, 4, seed=1), torch.tensor([0.3, 0.7], dtype=torch.float64)
    teacher = 0.3 * rho[0].numpy() + 0.7 * rho[1].numpy()
    expected = kl(softmax(teacher, 10.0), softmax(logits.numpy(), 10.0)).mean()
    assert float(kd_loss(rho, logits, shares, 10.0)) == pytest.approx(expected, rel=1e-9)
    rho.requires_grad_(), logits.requires_grad_()
    kd_loss(rho, logits, shares, 10.0).backward()
    assert rho.grad is None and logits.grad is not None  # teachers do not learn


def test_kdc_losses_are_eqs_10_and_11() -> None:
    own, made, d, heads = random(4, 3), random(2, 4, 3, seed=1), linear(2), [linear(4), linear(6)]
    rho = torch.stack([head(m) for head, m in zip(heads, made, strict=True)])
    found = kdc_losses(own, made, rho, d, heads, TAU, 10.0)

    def numpy(layer: nn.Linear, x: Tensor) -> np.ndarray:
        return softmax(x.numpy() @ layer.weight.detach().numpy().T + layer.bias.detach().numpy(), 10.0)

    targets = [numpy(head, m) for head, m in zip(heads, made, strict=True)]
    students = ([numpy(d, own)] * 2, [numpy(d, m) for m in made], [numpy(head, own) for head in heads])
    for loss, student in zip(found, students, strict=True):
        expected = sum(TAU[i].numpy() * kl(targets[i], student[i]) for i in range(2)).mean()
        assert float(loss.detach()) == pytest.approx(expected, rel=1e-9)


def test_each_kdc_loss_trains_what_it_should_and_no_teacher() -> None:
    """L_kl,1 moves G and D, L_kl,2 only D, L_kl,3 only G."""
    for which, moves_g, moves_d in ((0, True, True), (1, False, True), (2, True, False)):
        own, made, d, heads = (
            random(4, 3).requires_grad_(),
            random(2, 4, 3, seed=1).requires_grad_(),
            linear(2),
            [linear(4), linear(6)],
        )
        rho = random(2, 4, 4, seed=8).requires_grad_()
        for head in heads:
            head.requires_grad_(False)
        kdc_losses(own, made, rho, d, heads, TAU, 1.0)[which].backward()
        assert (own.grad is not None and float(own.grad.abs().sum()) > 0) is moves_g
        assert (d.weight.grad is not None and float(d.weight.grad.abs().sum()) > 0) is moves_d
        assert rho.grad is None and made.grad is None


def test_ramp_starts_at_zero_unless_there_is_none() -> None:
    assert [ramp(r, 4, 1.0) for r in (1, 2, 3, 4)] == [0.0, 0.25, 0.5, 0.75]
    assert ramp(3, 4, 3.0) == 0.125 and ramp(1, 4, 0.0) == 1.0


def test_the_noise_is_normal_or_uniform() -> None:
    cpu = torch.device("cpu")
    normal, uniform = (
        draw_noise(GeneratorAggregation(noise=noise, noise_dim=50), 200, torch.Generator().manual_seed(0), cpu)
        for noise in ("normal", "uniform")
    )
    assert normal.shape == uniform.shape == (200, 50)
    assert abs(float(normal.mean())) < 0.05 and float(normal.std()) == pytest.approx(1.0, abs=0.05)
    assert (
        float(uniform.min()) >= 0 and float(uniform.max()) < 1 and float(uniform.mean()) == pytest.approx(0.5, abs=0.02)
    )


def uploads_of(toy: Path, **values: object) -> tuple[Simulation, list[Upload]]:
    simulation = Simulation("fedmdcg", values_for("fedmdcg", toy, **values), 3, torch.device("cpu"))
    m, s = simulation.method, simulation
    return s, [
        Upload(
            i,
            m.client(
                s.config, s.fed, m.download(s.config, s.fed, s.progress.state, i), None, data, s.fed.rng.child(i)
            ).upload,
        )
        for i, data in enumerate(s.data.clients)
    ]


def test_averages_are_weighted_by_client_size_and_cover_running_statistics(toy: Path) -> None:
    s, uploads = uploads_of(toy, server_agg="ave")
    generator, head = aggregate(s.config, s.fed, uploads, None, torch.full((4,), 0.25), s.fed.rng)
    sizes = np.array(s.fed.sizes)
    for part, found in (("generator", generator), ("head", head)):
        for name, tensor in found.items():
            if tensor.is_floating_point():
                many = np.stack([u.payload[f"{part}/{name}"].double().numpy() for u in uploads])
                np.testing.assert_allclose(
                    tensor.numpy(), np.tensordot(sizes / sizes.sum(), many, 1), rtol=1e-5, atol=1e-7
                )
    assert any("running_mean" in name for name in generator) and all(name.startswith("head.") for name in head)


@pytest.mark.parametrize("kind", ["kd", "kdc"])
def test_distillation_brings_the_global_pair_nearer_to_the_local_ones(kind: str, toy: Path) -> None:
    """The loss of the last tenth of the steps is below that of the first tenth."""
    s, uploads = uploads_of(toy, server_agg=kind, server_steps=60, server_lr=0.01)
    seen: list[float] = []
    original = generator_aggregation.kd_loss if kind == "kd" else generator_aggregation.kdc_losses

    def recorded(*arguments: object) -> object:
        found = original(*arguments)  # type: ignore[operator]
        seen.append(float((found if kind == "kd" else sum(found)).detach()))  # type: ignore[attr-defined, arg-type]
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generator_aggregation, "kd_loss" if kind == "kd" else "kdc_losses", recorded)
        aggregate(s.config, s.fed, uploads, torch.full((4, 4), 0.25), torch.full((4,), 0.25), s.fed.rng)
    assert len(seen) == 60 and np.mean(seen[-6:]) < 0.7 * np.mean(seen[:6])


@pytest.mark.usefixtures("float64")
def test_element_norm_divides_by_the_number_of_classes(toy: Path) -> None:
    """With one plain step of Adam the direction is the same; what differs is only seen in Adam's first moment."""
    s, uploads = uploads_of(toy, server_agg="kd", server_steps=1, gen_weight_decay=0.0)
    moments = []
    original = generator_aggregation.Adam
    for norm in ("batch", "element"):
        config = type(s.config)(**{**vars(s.config), "server_kl_norm": norm})
        with pytest.MonkeyPatch.context() as patch:
            made: list[torch.optim.Adam] = []

            def adam(*arguments: object, made: list[torch.optim.Adam] = made, **options: object) -> torch.optim.Adam:
                made.append(original(*arguments, **options))  # type: ignore[arg-type]
                return made[-1]

            patch.setattr(generator_aggregation, "Adam", adam)
            aggregate(config, s.fed, uploads, None, torch.full((4,), 0.25), s.fed.rng)
        state = made[0].state_dict()["state"]
        moments.append(torch.cat([state[i]["exp_avg"].flatten() for i in state]))
    torch.testing.assert_close(moments[0], 4 * moments[1], rtol=1e-9, atol=1e-14)


@pytest.mark.usefixtures("float64")
def test_the_feature_generator_is_three_layers_conditioned_on_one_hot_labels() -> None:
    """FedMD-CG's generator: [z; onehot] → 512 BN ReLU → 256 BN ReLU → p."""
    g = FeatureGenerator(128, 10, 128)
    assert sum(p.numel() for p in g.parameters()) == 139 * 512 + 2 * 512 + 513 * 256 + 2 * 256 + 257 * 128
    z, y = torch.randn(6, 128), torch.tensor([0, 1, 2, 3, 4, 9])
    g(z, y)
    g.eval()
    w = {name: tensor.numpy().astype(np.float64) for name, tensor in g.state_dict().items()}
    x = np.concatenate([z.numpy(), np.eye(10)[y.numpy()]], axis=1)
    for layer in (0, 3):
        x = x @ w[f"layers.{layer}.weight"].T + w[f"layers.{layer}.bias"]
        n = f"layers.{layer + 1}."
        x = np.maximum(
            (x - w[n + "running_mean"]) / np.sqrt(w[n + "running_var"] + 1e-5) * w[n + "weight"] + w[n + "bias"], 0
        )
    np.testing.assert_allclose(
        g(z, y).detach().numpy(), x @ w["layers.6.weight"].T + w["layers.6.bias"], rtol=1e-9, atol=1e-12
    )


@pytest.mark.usefixtures("float64")
def test_a_frozen_generator_treats_samples_by_themselves_and_a_batch_of_one_is_possible_in_training() -> None:
    g = FeatureGenerator(5, 3, 4, (8,))
    z, y = torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    before = {k: v.clone() for k, v in g.state_dict().items()}
    g.train()(z[:1], y[:1]).sum().backward()
    assert all(torch.equal(before[k], v) for k, v in g.state_dict().items()), "one sample says nothing about a batch"
    torch.testing.assert_close(g.eval()(z, y)[:2], g(z[:2], y[:2]), rtol=1e-12, atol=1e-12)


def test_initialise_gives_the_same_bits_and_leaves_the_global_generator_alone() -> None:
    state = torch.get_rng_state()
    a, b = FeatureGenerator(5, 3, 4), FeatureGenerator(5, 3, 4)
    assert torch.equal(torch.get_rng_state(), state)
    a(torch.randn(4, 4), torch.zeros(4, dtype=torch.long))
    for g in (a, b):
        initialise(g, torch.Generator().manual_seed(7))
    assert all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))
    assert float(a.layers[0].weight.abs().max()) <= 7**-0.5


def test_a_model_falls_into_extractor_and_classifier(toy: Path) -> None:
    simulation, _ = simulate("fedavg", toy, 1)
    model = simulation.progress.state.model
    assert head_of(model) | body_of(model) == model and set(head_of(model)) == {"head.weight", "head.bias"}


def test_how_many_steps_the_teachers_answer_at_once_changes_nothing(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three steps of eight samples: all at once, or two and one."""
    ends = []
    for samples in (1024, 16):
        monkeypatch.setattr("trainables.building_blocks.generator_aggregation._CHUNK", samples)
        more = {"server_steps": 3, "server_batch_size": 8, "noise_dim": 8}
        ends.append(simulate("fedcg", toy, 1, **more)[0].progress.state)
    for name, tensor in ends[0].generator.items():
        torch.testing.assert_close(ends[1].generator[name], tensor)


@pytest.mark.parametrize(
    ("bound", "expected"), [(1024, [24]), (16, [16, 8]), (23, [16, 8]), (8, [8] * 3), (5, [8] * 3)]
)
def test_teachers_answer_for_as_many_steps_as_the_bound_holds_and_for_one_at_least(
    bound: int, expected: list[int], toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three steps of eight samples."""
    s, uploads = uploads_of(toy, server_steps=3)
    asked = []

    def drawn(config: GeneratorAggregation, samples: int, *more: Any) -> Tensor:
        asked.append(samples)
        return draw_noise(config, samples, *more)

    monkeypatch.setattr(generator_aggregation, "_CHUNK", bound)
    monkeypatch.setattr(generator_aggregation, "draw_noise", drawn)
    answers = list(generator_aggregation._Teachers(s.config, s.fed, uploads).batches(torch.full((4,), 0.25), s.fed.rng))
    assert asked == expected
    shapes = [(len(z), len(y), made.shape[:2], rho.shape) for z, y, made, rho in answers]
    assert shapes == [(8, 8, (4, 8), (4, 8, 4))] * 3
