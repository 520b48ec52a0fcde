"""Running statistics of batch normalisation: the layer beside PyTorch's own, and the models that are built with it."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.exact import assert_as_exact
from trainables import models
from trainables.models.layers import MOMENTUM, STATISTICS, BatchNorm, is_statistic

WITH_NORMS = ("lenet_code", "cnn_small", "resnet10")


def pair(channels: int, negative: bool = False) -> tuple[BatchNorm, nn.BatchNorm2d]:
    """A layer that keeps statistics and PyTorch's, of the same weights, the first below zero where `negative`."""
    ours, theirs = BatchNorm(channels), nn.BatchNorm2d(channels)
    ours.keep_statistics()
    generator = torch.Generator().manual_seed(channels)
    with torch.no_grad():
        for layer in (ours, theirs):
            generator.manual_seed(channels)
            layer.weight.copy_(torch.rand(channels, generator=generator) + 0.5)
            layer.weight[0] *= -1 if negative else 1
            layer.bias.copy_(torch.randn(channels, generator=generator))
    return ours, theirs


def maps(*shape: int, seed: int = 0) -> Tensor:
    """Maps that are not centred."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 2 + 1


@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("pool", [False, True])
def test_training_and_evaluation_are_those_of_pytorchs_layer(
    pool: bool, layout: torch.memory_format, negative: bool
) -> None:
    ours, theirs = pair(5, negative)
    expected = (lambda x: F.max_pool2d(theirs(x), 2)) if pool else theirs
    for step in range(3):
        x = maps(6, 5, 8, 8, seed=step).contiguous(memory_format=layout)
        assert torch.equal(ours(x, pool=pool), expected(x))
    assert all(torch.equal(getattr(ours, name), getattr(theirs, name)) for name in STATISTICS)
    assert theirs.momentum == MOMENTUM and not torch.equal(ours.running_var, torch.ones(5))
    ours.eval(), theirs.eval()
    before = ours.running_mean.clone()
    for x in (maps(6, 5, 8, 8, seed=9), maps(1, 5, 2, 2, seed=10)):
        assert torch.equal(ours(x, pool=pool), expected(x))
        with torch.no_grad():
            assert torch.equal(ours(x, pool=pool), expected(x))
    assert torch.equal(ours.running_mean, before)


@pytest.mark.parametrize("pool", [False, True])
@pytest.mark.parametrize("scaler", [2.0, 16.0, 3.0])
def test_a_scaler_is_what_multiplying_the_maps_would_be(scaler: float, pool: bool) -> None:
    """Value and gradients, with maps so small that eps counts: of powers of two to the bit. It must not be lost where
    running statistics are kept."""
    layer, slopes = BatchNorm(5), maps(6, 5, *((4, 4) if pool else (8, 8)), seed=1)
    small = 1e-3 * maps(6, 5, 8, 8).to(memory_format=torch.channels_last)

    def results(dtype: torch.dtype, inside: float, outside: float) -> list[Tensor]:
        x, own = small.to(dtype).requires_grad_(), layer.to(dtype)
        y = own(x * outside, pool=pool, scaler=inside)
        return [y.detach(), *torch.autograd.grad(y, (x, *own.parameters()), slopes.to(dtype))]

    ours, plain = results(torch.float32, scaler, 1.0), results(torch.float32, 1.0, scaler)
    assert_as_exact(ours, plain, results(torch.float64, 1.0, scaler))
    assert scaler == 3 or all(torch.equal(a, b) for a, b in zip(ours, plain, strict=True))
    assert not torch.allclose(ours[0], results(torch.float32, 1.0, 1.0)[0], rtol=0.1)
    kept, _ = pair(5)
    first = kept(small, scaler=scaler)
    kept.reset_running_stats()
    assert torch.equal(first, kept(small * scaler))


def test_training_gives_the_bits_of_a_layer_without_statistics() -> None:
    ours, _ = pair(5)
    plain = BatchNorm(5)
    plain.load_state_dict({name: t for name, t in ours.state_dict().items() if not is_statistic(name)})
    x, y = (maps(6, 5, 8, 8).requires_grad_(True) for _ in range(2))
    made, expected = ours(x), plain(y)
    assert torch.equal(made, expected)
    made.square().sum().backward()
    expected.square().sum().backward()
    assert torch.equal(x.grad, y.grad) and torch.equal(ours.weight.grad, plain.weight.grad)


def test_a_single_value_is_normalised_by_the_running_statistics_and_leaves_them() -> None:
    ours, theirs = pair(5)
    ours(maps(6, 5, 8, 8)), theirs(maps(6, 5, 8, 8))
    before, x = ours.state_dict()["running_var"].clone(), maps(1, 5, 1, 1)
    assert torch.equal(ours.train()(x), theirs.eval()(x)) and torch.equal(ours.running_var, before)


def test_in_bfloat16_statistics_stay_float32_and_a_large_mean_does_no_harm() -> None:
    """Beside PyTorch's layer, which takes float32 statistics in bfloat16 too, and the formulas in float64."""
    ours, theirs = pair(5)
    mean, var = torch.zeros(5, dtype=torch.float64), torch.ones(5, dtype=torch.float64)
    for step in range(3):
        x = (maps(6, 5, 8, 8, seed=step) + 40).bfloat16()
        ours(x), theirs(x)
        wide = x.double()
        mean = 0.9 * mean + 0.1 * wide.mean((0, 2, 3))
        var = 0.9 * var + 0.1 * wide.var((0, 2, 3), correction=1)
    statistics = {"running_mean": mean, "running_var": var}
    assert ours.running_mean.dtype == ours.running_var.dtype == torch.float32
    assert_as_exact(*({n: getattr(layer, n) for n in STATISTICS} for layer in (ours, theirs)), statistics)
    x = (maps(6, 5, 8, 8, seed=9) + 40).bfloat16()
    made, expected = ours.eval()(x), theirs.eval()(x)
    scale = ours.weight.double() / (var + ours.eps).sqrt()
    exact = (x.double() - mean[:, None, None]) * scale[:, None, None] + ours.bias.double()[:, None, None]
    assert made.dtype == torch.bfloat16
    assert_as_exact(made, expected, exact.detach(), eps=torch.finfo(torch.bfloat16).eps)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("training", [True, False])
def test_stacked_layers_follow_their_own_batches(training: bool, dtype: torch.dtype) -> None:
    """Three clients as one program, of which each has its own statistics."""
    ours, _ = pair(5)
    ours.train(training)
    weights = {name: p.detach() for name, p in ours.named_parameters()}
    x = torch.stack([maps(6, 5, 8, 8, seed=k) + k for k in range(3)]).to(dtype)
    own = {name: torch.stack([b + k for k in range(3)]) for name, b in ours.named_buffers()}
    one_by_one = [{name: b + k for name, b in ours.named_buffers()} for k in range(3)]
    run = partial(torch.func.functional_call, ours)
    made = torch.func.vmap(lambda buffers, images: run(weights | buffers, (images,)))(own, x)
    for k, buffers in enumerate(one_by_one):
        before = {name: b.double() + k for name, b in ours.named_buffers()}
        expected, wide = run(weights | buffers, (x[k],)), x[k].double()
        batch = {"running_mean": wide.mean((0, 2, 3)), "running_var": wide.var((0, 2, 3), correction=1)}
        after = {name: 0.9 * old + 0.1 * batch[name] for name, old in before.items()} if training else before
        mean, var = (batch["running_mean"], wide.var((0, 2, 3), correction=0)) if training else before.values()
        exact = (wide - mean[:, None, None]) / (var[:, None, None] + ours.eps).sqrt()
        exact = exact * ours.weight.double()[:, None, None] + ours.bias.double()[:, None, None]
        assert_as_exact(made[k], expected, exact.detach(), eps=torch.finfo(dtype).eps)
        assert_as_exact({name: own[name][k] for name in own}, buffers, after)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", [name for name in models.names() if not models.reads_tokens(name)])
@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_a_model_is_the_same_but_for_the_statistics_of_its_normalisation(name: str, rate: float) -> None:
    shape = (3, 16, 16)
    plain, keeping = models.build(name, shape, 7, rate), models.build(name, shape, 7, rate, batch_norm="running")
    norms = [key for key, part in keeping.named_modules() if isinstance(part, BatchNorm)]
    assert models.has_batch_norm(name) == bool(norms) == keeping.keeps_statistics and not plain.keeps_statistics
    assert set(keeping.state_dict()) - set(plain.state_dict()) == {f"{n}.{s}" for n in norms for s in STATISTICS}
    assert list(keeping.axes) == list(keeping.state_dict())
    for norm in norms:
        for statistic in STATISTICS:
            assert keeping.axes[f"{norm}.{statistic}"] == keeping.axes[f"{norm}.weight"]
            assert keeping.get_buffer(f"{norm}.{statistic}").shape == keeping.get_parameter(f"{norm}.weight").shape
    x = torch.randn(4, *shape, generator=torch.Generator().manual_seed(0))
    assert torch.equal(plain.train()(x), keeping.train()(x))
    with torch.no_grad():
        alone, together = keeping.eval()(x[:1]), keeping(x)
    assert not norms or not torch.equal(plain.eval()(x), together)
    torch.testing.assert_close(alone, together[:1], rtol=1e-9, atol=1e-9)
    models.initialise(keeping, torch.Generator().manual_seed(1))
    assert all(bool((keeping.get_buffer(f"{n}.running_mean") == 0).all()) for n in norms)
    assert all(bool((keeping.get_buffer(f"{n}.running_var") == 1).all()) for n in norms)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", WITH_NORMS)
def test_the_scaler_acts_in_evaluation_too_where_statistics_are_of_scaled_inputs(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a batch's own statistics as running ones, evaluation computes on that batch what training did."""
    monkeypatch.setattr("trainables.models.layers.MOMENTUM", 1.0)
    model = models.build(name, (1, 16, 16), 5, 0.5, scaler=True, batch_norm="running").train()
    counts: dict[str, int] = {}

    def count(key: str, part: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        counts[key] = inputs[0][:, 0].numel()

    norms = {key: part for key, part in model.named_modules() if isinstance(part, BatchNorm)}
    for key, part in norms.items():
        part.register_forward_pre_hook(partial(count, key))
    x = torch.randn(4, 1, 16, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float32).double()
    trained = model(x)
    for key, part in norms.items():  # of the population, as the batch was normalised
        part.running_var *= (counts[key] - 1) / counts[key]
    torch.testing.assert_close(model.eval()(x), trained, rtol=1e-9, atol=1e-9)
