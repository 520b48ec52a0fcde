"""`make bench-gpu` without a GPU: all of its parts on the device that pretends to be one, and what judges a precision.
No figure is judged."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.stats import paired
from benchmarks import arithmetic, images, measure, page, workloads
from benchmarks.cases import gpu
from benchmarks.results import Case
from tests import pretend_device
from tests.contracts import test_pretend_device
from tests.pretend_device import AVAILABLE, DEVICE
from trainables.kernels import recorded_steps
from trainables.models import precision

needs_device = pytest.mark.skipif(not AVAILABLE, reason="this PyTorch takes no device written in Python")


class Here:
    """The benchmarks' processes, all in this one, one after the other: each would import everything anew."""

    def __init__(self, title: str) -> None:
        self._units: dict[str, Any] = {}

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *error: object) -> None:
        self._units.clear()

    def start(self, name: str, arm: measure.Arm) -> None:
        self._units[name] = getattr(workloads, arm.workload)(**json.loads(json.dumps(dict(arm.options))))

    def run(self, names: list[str]) -> tuple[float, list[dict[str, Any]]]:
        began = time.perf_counter()
        for name in names:
            self._units[name].run()
        return time.perf_counter() - began, []

    def describe(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(json.dumps(self._units[name].describe()))
        return found


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data of its own, no other processes, a device that computes in TF32 and bfloat16, and short phases of a server
    that are recorded as long ones are."""
    monkeypatch.setattr(images, "OUT", tmp_path)
    monkeypatch.setattr(gpu, "Processes", Here)
    monkeypatch.setattr(arithmetic, "Processes", Here)
    monkeypatch.setattr(precision, "capability", lambda device: (8, 0))
    monkeypatch.setattr(precision, "supported", lambda device: True)
    monkeypatch.setattr(recorded_steps, "FEWEST", 2)


@needs_device
def test_every_part_is_measured_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: list[object] = []

    def record(step: Callable[[], None]) -> Callable[[], None]:
        recorded.append(step)
        return pretend_device.record(step)

    monkeypatch.setattr(test_pretend_device, "record", record)
    case = gpu.run(quick=True, device=DEVICE)
    assert case is not None
    tables = {table["title"].split(" on ")[0]: table["rows"] for table in case.tables}
    apart = [["loop", 1], ["graph", 1], ["vmap", 1], ["vmap", 2]]
    assert [row[:2] for row in tables["LeNet-5"]] == [*apart, [gpu.BUNDLED, 1], [gpu.BUNDLED, 2]]
    precisions = [row[:2] for row in tables["Precisions, channels last,"]]
    assert precisions == [["LeNet-5", "fp32"], ["LeNet-5", "tf32"], ["LeNet-5", "bf16"]]
    assert all(row[2] > 0 and row[3] > 0 and row[5] > 0 for row in tables["LeNet-5"])
    arms = [(method, steps, 1) for method in ("dfrd", "fedmdcg") for steps in (gpu.PLAIN, gpu.RECORDED)]
    assert [tuple(row[:3]) for row in tables["Whole rounds"]] == [*arms, ("dfrd", gpu.RECORDED, 2)]
    # Clients' steps once for LeNet-5 and once for the sizes; of every turn two phases of DFRD's server, three times,
    # and one of FedMD-CG's.
    assert [(len(recorded) - 2) % 7, len(recorded) > 2] == [0, True]
    judged, narrow = tables["Accuracy"]
    assert judged[1:3] == ["tf32", 2] and judged[4] == 0 and judged[6] == "yes"  # TF32 rounds nothing here
    assert narrow[1:3] == ["bf16", 2]
    measured = {goal.text for goal in case.goals if goal.got is not None}
    assert measured == {gpu.RECORDED_STEPS, gpu.WHOLE_ROUND}  # four trials and 64 are for those who have a GPU
    rows = {tuple(row[:3]): row[3] for row in tables["Whole rounds"]}
    ratio = rows["dfrd", gpu.PLAIN, 1] / rows["dfrd", gpu.RECORDED, 1]
    assert next(goal.got for goal in case.goals if goal.text == gpu.WHOLE_ROUND) == ratio
    assert any("MPS" in note for note in case.notes) and any("peak was measured" in note for note in case.notes)
    assert not [note for note in case.notes if "could not be measured" in note]


@needs_device
def test_what_does_not_fit_is_named_and_the_time_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu._Bench, "judgement", lambda self, time_: None)
    case = gpu.run(quick=True, device=DEVICE, seconds=0.0)
    assert case is not None and all(not table["rows"] for table in case.tables if "Steps" not in table["title"])
    (note,) = [note for note in case.notes if note.startswith("Not measured, as the time was over: ")]
    assert "LeNet-5, vmap, 2 trials" in note and "dfrd, server's steps recorded, 1 trial" in note
    assert [(goal.text, goal.got) for goal in case.goals] == [(text, None) for text in gpu.GOALS]
    shown = page.terminal(case)
    assert "not measured  LeNet-5: rounds per hour of 64 bundled trials against" in shown and "reached" not in shown


def test_what_must_be_reached_is_what_was_asked_for() -> None:
    """Ratios by hand, of a table as a GPU gives it: 64 bundled trials against the best of all others."""
    case = Case("gpu", "title")
    lines = {("loop", 1): 10.0, ("graph", 1): 30.0, ("vmap", 1): 20.0, ("vmap", 4): 50.0, ("vmap", 16): 80.0}
    lines |= {(gpu.BUNDLED, 1): 20.0, (gpu.BUNDLED, 64): 400.0}
    rows: list[list[Any]] = [[executor, n, 1.0, rate, 1.0, None, 0.0] for (executor, n), rate in lines.items()]
    gpu.add(case, "LeNet-5", "card", rows)
    gpu.add(case, "DFRD's CNN", "card", [["graph", 1, 1.0, 100.0, 1.0, None, 0.0], [*rows[-1]]])
    gpu.add(case, "ResNet-18", "card", [["graph", 1, 1.0, 100.0, 1.0, None, 0.0], [*rows[-1]]])
    found = {goal.text: (goal.must, goal.got, goal.met) for goal in gpu.all_of(case.goals)}
    assert list(found.values()) == [
        (3.0, 3.0, True),
        (2.0, 2.5, True),
        (6.0, 5.0, False),
        (4.0, 4.0, True),
        (3.0, None, False),
    ]
    assert list(found) == list(gpu.GOALS)


def test_a_card_s_peak_is_that_of_its_own_name() -> None:
    def of(name: str) -> float:
        return next(peaks for start, peaks in gpu.PEAKS.items() if name.startswith(start))["bf16"]

    assert of("NVIDIA H100 80GB HBM3") == 989 and of("NVIDIA H100 PCIe") == 756


def test_operations_of_a_round_are_those_of_forward_and_backward_passes() -> None:
    """LeNet-5 by hand for one image of 28 × 28: two operations for every product of its five layers."""
    by_hand = 2 * (6 * 28 * 28 * 25 + 16 * 10 * 10 * 6 * 25 + 400 * 120 + 120 * 84 + 84 * 10)
    assert gpu._operations(gpu.MODELS[0], steps=7, batch=10) == 3 * 7 * 10 * by_hand


def test_a_precision_that_loses_a_point_or_cannot_be_told_has_not_passed() -> None:
    plain = {seed: 0.8 + 0.01 * seed for seed in range(6)}
    noise = [0.001, -0.001, 0.002, -0.002, 0.0015, -0.0015]

    def differs(by: float, spread: float) -> bool:
        return arithmetic.not_worse(paired(plain, {s: v + by + spread * noise[s] for s, v in plain.items()}))

    assert differs(0.0, 1.0) and differs(0.01, 1.0) and differs(-0.005, 1.0)
    assert not differs(-0.012, 1.0)  # worse
    assert not differs(0.0, 20.0)  # as the interval is wide
    assert not arithmetic.not_worse(paired({0: 0.5}, {0: 0.5}))


def test_bf16_is_judged_on_a_processor_by_the_same_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is measured of processes is by hand here: of each precision and seed."""
    asked: list[tuple[str, list[int]]] = []

    def accuracies(method: str, values: dict[str, object], device: str, seeds: range) -> dict[int, float]:
        chosen = str(values.get("precision", "fp32"))
        asked.append((chosen, list(seeds)))
        worse = {"fp32": 0.0, "tf32": 0.02, "bf16": 0.001}[chosen]
        return {seed: 0.5 + 0.1 * seed - worse * (seed % 2 + 1) for seed in seeds}

    monkeypatch.setattr(arithmetic, "accuracies", accuracies)
    case = Case("gpu", "title")
    passed = arithmetic.judge(case, [("fedavg", {"rounds": 3})], ("bf16", "tf32"), "cpu", fewest=2, most=4)
    assert passed == {"bf16"}
    assert asked == [(p, [0, 1, 2, 3]) for p in ("fp32", "bf16", "tf32")]
    assert [row[1] for row in case.tables[0]["rows"] if row[6] == "yes"] == ["bf16"]
    assert "was passed by bf16 on cpu" in case.notes[0]
    asked.clear()
    arithmetic.judge(case, [("fedavg", {"rounds": 3})], ("bf16",), "cpu", seconds=0.0, fewest=2, most=4)
    assert asked == [("fp32", [0, 1])] * 2 + [("bf16", [0, 1])]  # the first of them to see what a seed takes
