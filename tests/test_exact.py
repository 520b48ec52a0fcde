"""The yardstick itself: float64 runs are the same job, and what is wrong by a little is found, in a tensor and in a
client's work."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.contracts.test_executors import assert_clients_as_exact, start_alike, wide
from tests.contracts.test_methods import CPU, METHODS, same, values_for
from tests.exact import MARGIN, assert_as_exact, distance
from tests.float64 import in_float64, to_float64
from trainables.federation import ClientData, gather
from trainables.local import LocalTraining
from trainables.simulation import executors
from trainables.simulation.rounds import Simulation
from trainables.wire import ClientResult

pytestmark = pytest.mark.numeric


def tensors(value: Any) -> list[Tensor]:
    """Every floating-point tensor in a nest."""
    if isinstance(value, Tensor):
        return [value] if value.is_floating_point() else []
    values = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [t for item in values for t in tensors(item)]


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="PyTorch names other instructions there")
def test_pytorch_computes_as_on_the_processor_that_was_asked_for() -> None:
    """`make test-processors` asks for others than the one at hand."""
    used = torch.backends.cpu.get_cpu_capability().lower()
    assert used == os.environ.get("ATEN_CPU_CAPABILITY", used)


@pytest.mark.parametrize("name", METHODS)
def test_the_job_in_float64_has_the_same_start_and_stays_in_float64(name: str, toy: Path) -> None:
    plain, exact = Simulation(name, values_for(name, toy), 3, CPU), wide(name, values_for(name, toy))
    assert same(to_float64(plain.save()), exact.save())
    with in_float64():
        row = exact.run_round()
    assert {t.dtype for t in tensors(exact.save())} <= {torch.float64}
    drawn = {
        key: value for key, value in plain.run_round().items() if isinstance(value, int) and not key.startswith("bytes")
    }
    assert drawn == {key: row[key] for key in drawn}


def test_the_margin_is_the_distance_from_the_nearest_turn() -> None:
    x = torch.tensor([[3.0, -4.0, 0.01, 5.0]])
    size = float(x.square().mean().sqrt())
    with in_float64() as mode:
        torch.relu(x.double())
        assert mode.margin == pytest.approx(0.01 / size)
        mode.margin = 1.0
        nn.functional.max_pool2d(torch.tensor([[[[1.0, 1.5, 0.0, 0.0], [7.0, 7.002, 0.0, 0.0]]]]), 2)
        assert mode.margin == pytest.approx(0.002 / ((1 + 2.25 + 49 + 7.002**2) / 8) ** 0.5)


@pytest.fixture
def product() -> tuple[Tensor, Tensor, Tensor]:
    """A matrix product in float32 in two orders, and in float64."""
    a, b = (torch.randn(64, 512, generator=torch.Generator().manual_seed(i)) for i in range(2))
    parts = [a[:, i : i + 64] @ b[:, i : i + 64].T for i in range(0, 512, 64)]
    return torch.stack(parts).sum(0), a @ b.T, a.double() @ b.T.double()


def test_another_order_of_sums_passes(product: tuple[Tensor, Tensor, Tensor]) -> None:
    fast, plain, exact = product
    assert not torch.equal(fast, plain)
    assert_as_exact(fast, plain, exact)
    assert_as_exact({"a": [fast, 3, None]}, {"a": [plain, 3, None]}, {"a": [exact, 3, None]})
    assert 0 < distance(fast, exact) < 1e-6


@pytest.mark.parametrize(
    "wrong",
    [
        lambda t: t * (1 + 2e-5),
        lambda t: t + 1e-4,
        lambda t: t.index_fill(0, torch.tensor([5]), 0.0),  # a row left out
        lambda t: t.index_put(
            (torch.tensor(3), torch.tensor(4)), t[3, 4] + 0.05
        ),  # one entry of 4096, by a five-hundredth
        lambda t: t.bfloat16().float(),
        lambda t: t.index_put((torch.tensor(3), torch.tensor(4)), torch.tensor(torch.nan)),
        lambda t: t[:, :-1],
    ],
    ids=["factor", "shift", "row", "entry", "bfloat16", "nan", "shape"],
)
def test_what_is_wrong_by_a_little_is_found(wrong: Any, product: tuple[Tensor, Tensor, Tensor]) -> None:
    fast, plain, exact = product
    with pytest.raises(AssertionError):
        assert_as_exact(wrong(fast), plain, exact)


def test_numbers_names_and_what_is_compared_with() -> None:
    assert_as_exact(0.1000001, 0.1, 0.1)
    for fast, plain, exact in (
        (0.10001, 0.1, 0.1),
        (3, 4, 4),
        ("a", "b", "b"),
        ([1.0], [1.0, 2.0], [1.0, 2.0]),
        ({"a": 1}, {"b": 1}, {"b": 1}),
        (torch.ones(2, dtype=torch.int64), torch.zeros(2, dtype=torch.int64), torch.zeros(2, dtype=torch.int64)),
    ):
        with pytest.raises(AssertionError):
            assert_as_exact(fast, plain, exact)
    with pytest.raises(AssertionError, match="must be float64"):
        assert_as_exact(torch.ones(2), torch.ones(2), torch.ones(2))


def without_decay(configs: Sequence[LocalTraining], parameters: Any) -> torch.optim.Optimizer:
    config = configs[0]
    return torch.optim.SGD(parameters, lr=config.lr, momentum=config.momentum)


def without_momentum(configs: Sequence[LocalTraining], parameters: Any) -> torch.optim.Optimizer:
    config = configs[0]
    return torch.optim.SGD(parameters, lr=config.lr, weight_decay=config.weight_decay)


def steeper(configs: Sequence[LocalTraining], parameters: Any) -> torch.optim.Optimizer:
    """As with a gradient that is 1e-4 too large."""
    config = configs[0]
    return torch.optim.SGD(
        parameters, lr=config.lr * (1 + 1e-4), momentum=config.momentum, weight_decay=config.weight_decay
    )


def shifted(clients: list[ClientData], chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Every client trains on its neighbour's samples."""
    return gather(clients[1:] + clients[:1], chosen)


def narrow(clients: list[ClientData], chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Images with eight bits of mantissa."""
    x, y = gather(clients, chosen)
    return x.bfloat16().float(), y


@pytest.mark.parametrize(
    ("part", "wrong"),
    [
        ("sgd_of_each", without_decay),
        ("sgd_of_each", without_momentum),
        ("sgd_of_each", steeper),
        ("gather", shifted),
        ("gather", narrow),
    ],
)
def test_an_executor_that_is_wrong_by_a_little_is_found(
    part: str, wrong: Any, toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparison passes before the change and fails with it, for a weight decay of a hundredth too."""
    values = values_for("fedavg", toy, momentum=0.5, weight_decay=0.01, partition="iid")
    loop, stacked = (Simulation("fedavg", values | {"executor": e}, 3, CPU) for e in ("loop", "vmap"))
    exact = wide("fedavg", values)
    start_alike(exact, loop, stacked)
    start = exact.save()
    assert any(assert_clients_as_exact(stacked.exchange()[1], loop.exchange()[1], exact))
    exact.load(start)
    start_alike(exact, loop, stacked)
    monkeypatch.setattr(executors, part, wrong)
    with pytest.raises(AssertionError, match="from float64"):
        assert_clients_as_exact(stacked.exchange()[1], loop.exchange()[1], exact)


def test_another_clients_weights_are_found_where_a_jump_is_allowed() -> None:
    """An undecided client is not left unseen."""
    weights = {"w": torch.randn(64, 32, generator=torch.Generator().manual_seed(0))}
    result = ClientResult(weights, loss=0.5)
    exact = ClientResult({"w": weights["w"].double()}, loss=0.5)
    jumped = ClientResult({"w": weights["w"] * 1.01}, loss=0.5)
    assert_as_exact(jumped, result, exact, decided=False)
    for wrong in (
        replace(result, upload={"w": weights["w"].flip(0)}),
        replace(result, upload={"w": weights["w"] * 1.1}),
        replace(result, loss=0.6),
    ):
        with pytest.raises(AssertionError):
            assert_as_exact(wrong, result, exact, decided=False)
    assert MARGIN < 1e-6
