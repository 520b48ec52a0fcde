"""bf16: models' passes in bfloat16, everything that is kept or measured in float32, refused where the machine has
none."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from search_spaces.errors import UserError
from tests.contracts.test_executors import exact_round, start_alike, wide
from tests.contracts.test_methods import CPU, METHODS, untimed, values_for
from tests.exact import assert_as_exact
from tests.float64 import in_float64
from tests.pretend_device import AVAILABLE, DEVICE, pretending
from trainables import local, registry
from trainables.generators import Generator
from trainables.models import precision
from trainables.simulation import executors
from trainables.simulation.checkpoint import to_tree
from trainables.simulation.rounds import Simulation

pytestmark = pytest.mark.numeric
EPS = torch.finfo(torch.bfloat16).eps
#: How much these methods send hangs on the values: singular values up to a share of the energy.
BY_VALUE = {"fedkd"}


def tensors(value: Any) -> list[torch.Tensor]:
    """Every tensor in a nested value."""
    if isinstance(value, torch.Tensor):
        return [value]
    values = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [t for item in values for t in tensors(item)]


@pytest.mark.parametrize("flags", [frozenset(), frozenset({"avx512f", "amx_int8"})])
def test_refused_on_a_processor_without_it(flags: frozenset[str], toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "processor_flags", lambda: flags)
    assert not precision.supported(CPU)
    with pytest.raises(UserError) as error:
        Simulation("fedavg", values_for("fedavg", toy, precision="bf16"), 3, CPU)
    assert str(error.value) == (
        "precision must be fp32 on this processor (no AMX, AVX512-BF16 or ARM BF16), which has no bfloat16 arithmetic, "
        "got 'bf16'. Use --set precision=fp32."
    )
    Simulation("fedavg", values_for("fedavg", toy), 3, CPU)


@pytest.mark.parametrize(("flag", "able"), [("amx_bf16", True), ("avx512_bf16", True), ("bf16", True), ("avx2", False)])
def test_which_flags_stand_for_it(flag: str, able: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "processor_flags", lambda: frozenset({"fpu", flag}))
    assert precision.supported(CPU) is able


def test_a_gpu_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation=True: asked.append(including_emulation) or False
    )
    with pytest.raises(UserError, match="precision must be fp32 on this GPU, which has no bfloat16 arithmetic"):
        precision.check("bf16", torch.device("cuda"))
    assert asked == [False]
    precision.check("fp32", torch.device("cuda"))


def test_tf32_is_refused_where_there_is_none(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError) as error:
        Simulation("fedavg", values_for("fedavg", toy, precision="tf32"), 3, CPU)
    assert str(error.value) == (
        "precision must be fp32 on this processor, which has no TF32 arithmetic, got 'tf32'. Use --set precision=fp32."
    )
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    with pytest.raises(UserError, match=re.escape("on this GPU (of compute capability below 8.0), which has no TF32")):
        precision.check("tf32", torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    precision.check("tf32", torch.device("cuda"))


def flags() -> tuple[bool, bool]:
    return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32


@pytest.fixture
def ampere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every device passes for a GPU of compute capability 8.0 whose trials compute as `use_gpu` has them."""
    monkeypatch.setattr(precision, "capability", lambda device: (8, 0))
    before = flags()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


@pytest.mark.usefixtures("ampere")
@pytest.mark.parametrize("name", ["dfrd", "ditto"])  # server steps; a second model
def test_all_of_a_round_is_in_tf32_and_nothing_after_it(name: str, toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch asks for the flags when a kernel is launched, so forward and backward passes must both be within."""
    seen: dict[str, set[tuple[bool, bool]]] = {"tf32": set(), "fp32": set()}
    backward, forward = torch.Tensor.backward, torch.nn.Conv2d.forward
    for chosen, found in seen.items():
        with pytest.MonkeyPatch.context() as patch:

            def watched(function: Any, found: set[tuple[bool, bool]]) -> Any:
                return lambda *a, **k: (found.add(flags()), function(*a, **k))[1]

            patch.setattr(torch.Tensor, "backward", watched(backward, found))
            patch.setattr(torch.nn.Conv2d, "forward", watched(forward, found))
            s = Simulation(name, values_for(name, toy, precision=chosen), 3, CPU)
            assert "precision" not in s.run_round()
            s.exchange()
            s.confusion()
        assert flags() == (False, False)
    assert seen == {"tf32": {(True, True)}, "fp32": {(False, False)}}
    with pytest.raises(KeyError), precision.arithmetic("tf32"):
        raise KeyError
    assert flags() == (False, False)


@pytest.mark.usefixtures("ampere")
def test_auto_is_a_rule_about_model_and_gpu_and_takes_only_what_was_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = torch.device("cuda")

    def chosen(convolutions: bool, fills: bool) -> str:
        return precision.chosen(cuda, convolutions=convolutions, fills=fills)

    assert not precision.JUDGED and chosen(True, True) == "fp32"
    for judged, expected in (({"tf32"}, "tf32"), ({"tf32", "bf16"}, "bf16")):
        monkeypatch.setattr(precision, "JUDGED", frozenset(judged))
        assert (chosen(True, True), chosen(True, False), chosen(False, True)) == (expected, "fp32", "fp32")
    monkeypatch.setattr(precision, "capability", lambda device: (7, 5))
    assert chosen(True, True) == "fp32"


def test_auto_is_fp32_on_a_processor_and_says_so_in_every_row(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "JUDGED", frozenset(precision.FASTER))
    auto, plain = (Simulation("fedavg", values_for("fedavg", toy, precision=p), 3, CPU) for p in ("auto", "fp32"))
    assert auto.fed.precision == "fp32"
    assert untimed(auto.run_round()) == untimed(plain.run_round()) | {"precision": "fp32"}


@pytest.mark.usefixtures("ampere")
@pytest.mark.skipif(not AVAILABLE, reason="this PyTorch takes no device written in Python")
@pytest.mark.parametrize("name", METHODS)
def test_on_a_gpu_auto_counts_the_largest_model_that_clients_train(
    name: str, toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "JUDGED", frozenset({"tf32"}))
    with pretending():
        for fills, expected in ((0.0, "tf32"), (1e30, "fp32")):
            monkeypatch.setattr(executors, "FILLS", fills)
            values = values_for(name, toy, precision="auto", executor="loop")
            assert Simulation(name, values, 3, torch.device(DEVICE)).fed.precision == expected


def test_it_is_declared_and_recorded_but_not_searched() -> None:
    declared = registry.declared("dfrd")["precision"]
    assert (declared.default, declared.options, declared.tune) == ("fp32", precision.PRECISIONS, False)
    assert registry.resolve("dfrd", {"precision": "bf16"})["precision"] == "bf16"
    executor = registry.declared("dfrd")["executor"]
    assert (executor.default, executor.options, executor.tune) == ("auto", ("auto", "loop", "graph", "vmap"), False)


@pytest.mark.usefixtures("bf16")
def test_a_lowered_model_takes_and_gives_float32_and_computes_in_bfloat16(toy: Path) -> None:
    values = values_for("fedavg", toy, model="cnn_small")
    module = Simulation("fedavg", values | {"precision": "bf16"}, 3, CPU).fed.network()
    inside: list[torch.dtype] = []
    module.convs[1].register_forward_hook(lambda part, inputs, output: inside.append(output.dtype))
    module.head.register_forward_pre_hook(lambda part, inputs: inside.append(inputs[0].dtype))
    x = torch.randn(4, 1, 8, 8)
    logits, features = module(x), module.features(x)
    assert logits.dtype == features.dtype == module.head(features).dtype == torch.float32
    assert inside[:2] == [torch.bfloat16, torch.float32]
    logits.sum().backward()
    assert all(
        p.dtype == torch.float32 and p.grad is not None and p.grad.dtype == torch.float32 for p in module.parameters()
    )
    full = Simulation("fedavg", values, 3, CPU).fed.network()
    full.load_state_dict(module.state_dict())
    assert not torch.equal(logits, full(x))
    exact = copy.deepcopy(full).double()(x.double())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        plain = full(x)
    assert_as_exact(logits, plain, exact, eps=EPS)


@pytest.mark.usefixtures("bf16")
def test_a_lowered_generator_makes_float32_images(toy: Path) -> None:
    made = Generator((3, 8, 8), 4, 8)
    full, exact = made(torch.ones(2, 8)), copy.deepcopy(made).double()(torch.ones(2, 8).double())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        plain = made(torch.ones(2, 8))
    precision.lower(made, CPU)
    images = made(torch.ones(2, 8))
    assert images.dtype == torch.float32 and not torch.equal(images, full)
    assert_as_exact(images, plain, exact, eps=EPS)


@pytest.mark.usefixtures("bf16")
@pytest.mark.parametrize("name", METHODS)
def test_what_is_kept_or_minimised_stays_float32(name: str, toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """State, memories and uploads of two rounds hold no bfloat16, every loss is float32, and the results are near
    fp32's."""
    backward, losses = torch.Tensor.backward, set[torch.dtype]()

    def watch(self: torch.Tensor, *arguments: Any, **named: Any) -> None:
        losses.add(self.dtype)
        backward(self, *arguments, **named)

    monkeypatch.setattr(torch.Tensor, "backward", watch)
    rows = {}
    for chosen in ("fp32", "bf16"):
        s = Simulation(name, values_for(name, toy, precision=chosen), 3, CPU)
        rows[chosen] = [s.run_round() for _ in range(2)]
        assert not {t.dtype for t in tensors(to_tree(s.progress))} & {torch.bfloat16, torch.float16}
    assert losses == {torch.float32}
    for full, low in zip(rows["fp32"], rows["bf16"], strict=True):
        assert full.keys() == low.keys() and (name in BY_VALUE or full["bytes_up"] == low["bytes_up"])
    # Later rounds start from different weights; the first one compares the same steps.
    exact = wide(name, values_for(name, toy))
    with in_float64():
        expected, _ = exact.exchange()
    assert_as_exact(rows["bf16"][0]["train_loss"], rows["fp32"][0]["train_loss"], expected["train_loss"], eps=EPS)
    assert rows["bf16"] != rows["fp32"]


@pytest.mark.usefixtures("bf16")
@pytest.mark.parametrize("model", ["cnn_small", "cnn2"])
def test_bf16_learns_what_fp32_learns(model: str, toy: Path) -> None:
    accuracy = {}
    for chosen in ("fp32", "bf16"):
        s = Simulation(
            "fedavg",
            values_for("fedavg", toy, precision=chosen, model=model, local_steps=10, lr=0.1, omega=100.0),
            3,
            CPU,
        )
        accuracy[chosen] = [s.run_round() for _ in range(4)][-1]["global_accuracy"]
    assert min(accuracy.values()) > 0.9


@pytest.mark.usefixtures("bf16")
@pytest.mark.parametrize("model", ["cnn_small", "lenet5", "resnet8"])
def test_stacked_clients_run_in_bf16_too(model: str, toy: Path) -> None:
    """What a turn of one ReLU does is less than the rounding of bfloat16."""
    values = values_for("fedavg", toy, model=model)
    loop, stacked = (
        Simulation("fedavg", values | {"precision": "bf16", "executor": e}, 3, CPU) for e in ("loop", "vmap")
    )
    exact = wide("fedavg", values)
    start_alike(exact, loop, stacked)
    (_, ours), (_, theirs), (results, _) = stacked.exchange(), loop.exchange(), exact_round(exact)
    assert_as_exact(ours, theirs, results, eps=EPS)


@pytest.mark.usefixtures("bf16")
def test_wrong_steps_are_found_in_bf16_too(toy: Path) -> None:
    """Half of the steps left out."""
    values = values_for("fedavg", toy)
    exact, loop = wide("fedavg", values), Simulation("fedavg", values | {"precision": "bf16"}, 3, CPU)
    fewer = Simulation("fedavg", values | {"precision": "bf16", "executor": "vmap", "local_steps": 1}, 3, CPU)
    start_alike(exact, loop, fewer)
    (_, ours), (_, theirs), (results, _) = fewer.exchange(), loop.exchange(), exact_round(exact)
    with pytest.raises(AssertionError, match="from float64"):
        assert_as_exact(ours, theirs, results, eps=EPS)


def test_fp32_leaves_modules_alone(toy: Path) -> None:
    s = Simulation("fedavg", values_for("fedavg", toy), 3, CPU)
    assert "features" not in vars(s.fed.network()) and "forward" not in vars(s.fed.network().head)
    assert local.cross_entropy(s.fed.network(), torch.randn(4, *s.fed.shape), torch.arange(4)).dtype == torch.float32
