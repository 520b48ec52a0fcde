"""Every method, executor, option and model on a GPU: nothing is mixed, the same seed gives the same bits,
what is saved goes on to them, and every number is as near to float64 as a processor's.

`tests/contracts/test_pretend_device.py` shows most of it where there is no GPU. What only a GPU has is here: its
kernels and their rounding, the recording of steps, sums whose order is left to chance, and bfloat16."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.contracts.test_executors import NEEDED, exact_round, wide
from tests.contracts.test_methods import CPU, put_state, same, state_of, values_for
from tests.contracts.test_pretend_device import (
    EXECUTED,
    SERVED,
    SMALL,
    STEPS,
    of_size,
    on,
    options,
    rows_and_state,
    tensors,
    with_options,
)
from tests.exact import MARGIN, assert_as_exact, distance
from tests.float64 import in_float64, to_float32, to_float64
from tests.toy import write_toy
from tests.trainables.models.test_models import SHAPES
from trainables import models
from trainables.kernels import recorded_steps
from trainables.simulation import federated_data
from trainables.simulation.replicates import Replicates
from trainables.simulation.rounds import Row, Simulation
from trainables.worker import process

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU here")]

CUDA = torch.device("cuda")
#: A GPU's convolutions (Winograd's, by Fourier transforms) round so many times as much as a processor's sums do, and no
#: more: the shortened mantissas (TF32) that trials must not use are off by 2¹³ units in the last place.
COARSER = 64


@pytest.fixture(autouse=True)
def as_trials_compute() -> Iterator[None]:
    """Kernels are chosen as in a trial's process; images moved to the GPU are forgotten."""
    process.use_gpu()
    yield
    federated_data._MOVED.clear()


@pytest.mark.parametrize(("name", "executor"), EXECUTED)
def test_every_method_and_executor_is_as_exact_as_on_a_processor(name: str, executor: str, toy: Path) -> None:
    assert_as_exact_as_a_processor(name, values_for(name, toy, **SMALL, **NEEDED.get(name, {})), executor)


@pytest.mark.parametrize(("name", "more"), [(name, more) for name, more, _ in SERVED], ids=str)
def test_recorded_steps_of_a_server_are_as_exact_as_on_a_processor(
    name: str, more: dict[str, Any], toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded_steps, "FEWEST", 2)
    values = values_for(name, toy, **SMALL | STEPS | more)
    assert_as_exact_as_a_processor(name, values, "graph")


def assert_as_exact_as_a_processor(name: str, values: dict[str, Any], executor: str) -> None:
    """What clients and server compute in two rounds, each begun anew from float64."""
    here = Simulation(name, values | {"executor": executor}, 3, CUDA)
    plain, exact = Simulation(name, values, 3, CPU), wide(name, values)
    for _ in range(2):
        start = to_float32(state_of(exact))
        put_state(exact, to_float64(start))
        put_state(plain, start)
        put_state(here, on(CUDA, start))
        (_, ours), (_, theirs) = here.exchange(), plain.exchange()
        with in_float64() as whole:
            results, _ = exact_round(exact)
        allowed = {"eps": COARSER * torch.finfo(torch.float32).eps, "decided": whole.margin > COARSER * MARGIN}
        assert_as_exact(on(CPU, ours), theirs, results, **allowed)
        assert_as_exact(*(on(CPU, s.save()["state"]) for s in (here, plain, exact)), **allowed)


@pytest.mark.parametrize("operation", ["convolution", "product"])
def test_no_mantissa_is_shortened(operation: str) -> None:
    random = torch.Generator().manual_seed(0)
    x, w = (torch.randn(shape, generator=random) for shape in ((8, 64, 16, 16), (64, 64, 3, 3)))
    if operation == "product":
        x, w = x.view(128, -1), w.view(1024, -1)
    compute = F.conv2d if operation == "convolution" else torch.matmul
    exact = compute(x.double(), w.double())
    found = compute(x.to(CUDA), w.to(CUDA)).cpu()
    assert distance(found, exact) < COARSER * torch.finfo(torch.float32).eps


def assert_repeats(name: str, values: dict[str, Any], folder: Path) -> tuple[list[Row], Any]:
    """Two rounds a second time, interrupted, are the same to the bit; returns their rows and what is saved."""
    begin = partial(Replicates, name, values, [3], device="cuda")
    rows, state = rows_and_state(begin, folder / "whole", interrupted=False)
    again, resumed = rows_and_state(begin, folder / "parts")
    assert rows == again
    assert same(state, resumed)
    return rows, state


@pytest.mark.parametrize(("name", "executor"), EXECUTED)
def test_every_method_and_executor_repeats(name: str, executor: str, toy: Path, tmp_path: Path) -> None:
    assert_repeats(name, values_for(name, toy, executor=executor, **SMALL, **NEEDED.get(name, {})), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "key", "value"), list(options()), ids=str)
def test_every_option_repeats(name: str, key: str, value: Any, toy: Path, tmp_path: Path) -> None:
    assert_repeats(name, with_options(name, {key: value}, toy), tmp_path)


@pytest.mark.parametrize("model", [name for name in models.names() if not models.reads_tokens(name)])
def test_every_model_is_as_exact_as_on_a_processor_and_repeats(model: str, tmp_path: Path) -> None:
    toy = write_toy(tmp_path, train=40, test=8, size=SHAPES.get(model, (1, 28, 28))[1])
    values = values_for("fedavg", toy, model=model, **SMALL | {"local_steps": 1})
    assert_as_exact_as_a_processor("fedavg", values, "loop")
    assert_repeats("fedavg", values, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("size", [28, 32, 64])
@pytest.mark.parametrize("name", ["dfrd", "fedkf", "dhf"])
def test_every_size_of_the_generators_of_images_repeats(name: str, size: int, tmp_path: Path) -> None:
    assert_repeats(name, of_size(name, size, tmp_path), tmp_path)


@pytest.mark.parametrize("name", ["fedavg", "fedper", "lgfedavg", "local"])
def test_the_attack_repeats(name: str, toy: Path, tmp_path: Path) -> None:
    values = {"rounds": 2, "local_steps": 1, "attack_images": 1, "attack_steps": 2}
    assert_repeats(name, values_for(name, toy, **SMALL | values), tmp_path)


@pytest.mark.parametrize("executor", ["loop", "vmap", "graph"])
@pytest.mark.parametrize("name", ["fedavg", "dhf"])
def test_bfloat16_repeats_and_keeps_float32_weights(name: str, executor: str, toy: Path, tmp_path: Path) -> None:
    values = values_for(name, toy, **SMALL, executor=executor, precision="bf16")
    narrow, state = assert_repeats(name, values, tmp_path)
    wide_, _ = assert_repeats(name, values | {"precision": "fp32"}, tmp_path)
    assert narrow[0]["train_loss"] != wide_[0]["train_loss"]  # or nothing was computed in bfloat16
    assert narrow[0]["train_loss"] == pytest.approx(wide_[0]["train_loss"], rel=0.05)
    assert not [place for place, tensor in tensors(state) if tensor.dtype == torch.bfloat16]
