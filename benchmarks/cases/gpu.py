"""A GPU in ten minutes: trials side by side, its share of the peak, precisions, recorded servers, MPS, and whether a
faster arithmetic loses accuracy."""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import arithmetic
from benchmarks.cases.client_round import federation
from benchmarks.measure import Arm, Processes, say
from benchmarks.results import Case, Goal

TITLE = "On a GPU"
TEXT = """
FedAvg with ten clients on one GPU: n trials at once, each a process of its own with a share of 1/n of the memory, until all have done a round. `auto` is
vmap on a GPU where a step of the model is small, and recorded steps (graph) elsewhere. *vmap, bundled* are n trials with n learning rates in one process,
their clients as one program. Whole rounds of DFRD and FedMD-CG stand beside the same rounds without recorded steps of the server. *Per cent of the peak* are the operations of training alone
(three forward passes a step) over the whole round's seconds and what the card can do in that precision. All of it ends within ten minutes: where turns
are slow there are fewer, and what no longer fits is named.
"""
#: Seconds that all of it may take, and the parts' shares of them.
SECONDS = 570.0
SHARES = {"trials": 0.36, "precisions": 0.13, "servers": 0.2, "mps": 0.13, "judgement": 0.11, "sizes": 0.07}


@dataclass(frozen=True)
class Model:
    """A federation that is measured: model, images, steps of a client, how its clients are trained on a GPU."""

    name: str
    title: str
    side: int
    channels: int
    steps: int
    executor: str


MODELS = (
    Model("lenet5", "LeNet-5", 28, 1, 20, "vmap"),
    Model("cnn", "DFRD's CNN", 32, 3, 20, "graph"),
    Model("resnet18", "ResNet-18", 32, 3, 4, "graph"),
)
#: Trials in one process, their clients stacked.
BUNDLED = "vmap, bundled"
#: How many of a server's steps are recorded, in the table of whole rounds.
RECORDED, PLAIN = "recorded", "one by one"
#: What must be reached, all of it; a ratio each.
RECORDED_STEPS = "LeNet-5, one trial on a GPU: recorded steps against the loop"
FOUR = "LeNet-5: rounds per hour of 4 trials on one GPU against one"
BUNDLE = "{}: rounds per hour of 64 bundled trials against the best of trials in processes of their own"
WHOLE_ROUND = "DFRD's whole round as it is by default against the same with the server's steps one by one"
GOALS = {
    RECORDED_STEPS: 3.0,
    FOUR: 2.0,
    BUNDLE.format("LeNet-5"): 6.0,
    BUNDLE.format("DFRD's CNN"): 4.0,
    WHOLE_ROUND: 3.0,
}
#: Model, side and channels of its images, batch: the sizes of a step that are compared. Ten clients of ten steps each.
SIZES = (
    ("cnn", 28, 1, 16),
    ("cnn_small", 28, 1, 64),
    ("cnn", 8, 1, 64),
    ("resnet8", 32, 3, 16),
    ("lenet5", 28, 1, 256),
    ("cnn_small", 8, 1, 64),
    ("lenet_code", 28, 1, 64),
    ("resnet8", 32, 3, 64),
)
#: 10¹² operations a second by the beginning of a card's name: fp32, TF32 and bf16 without sparsity, as NVIDIA states
#: them.
PEAKS: dict[str, dict[str, float]] = {
    "NVIDIA H100 PCIe": {"fp32": 51, "tf32": 378, "bf16": 756},
    "NVIDIA H100": {"fp32": 67, "tf32": 495, "bf16": 989},
    "NVIDIA H200": {"fp32": 67, "tf32": 495, "bf16": 989},
    "NVIDIA A100": {"fp32": 19.5, "tf32": 156, "bf16": 312},
    "NVIDIA L4": {"fp32": 30.3, "tf32": 60, "bf16": 121},
    "Tesla V100": {"fp32": 15.7},
    "Tesla T4": {"fp32": 8.1},
}
#: Whose accuracies are compared: models of the kind that `precision=auto` is for.
JUDGED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("fedavg", {"model": "cnn", "dataset": "digits", "rounds": 15, "lr": 0.05, "omega": 0.5}),
    ("fedavg", {"model": "resnet8", "dataset": "digits", "rounds": 15, "lr": 0.05, "omega": 0.5}),
    ("dfrd", {"model": "cnn", "dataset": "digits", "rounds": 5, "lr": 0.05, "omega": 0.5, "kd_temperature": 3.0}),
)


def run(quick: bool, device: str = "cuda", seconds: float = SECONDS) -> Case | None:
    """`device` is another one in tests."""
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        print(
            "There is no GPU here that PyTorch can use, so there is nothing to measure; run `make bench-gpu` on a "
            "machine with one.",
            file=sys.stderr,
        )
        return None
    case = Case("gpu", TITLE, TEXT, quick=quick)
    return _Bench(case, quick, device, seconds).run()


class _Time:
    """The seconds of one part."""

    def __init__(self, seconds: float) -> None:
        self._ends = time.monotonic() + seconds

    @property
    def left(self) -> float:
        return self._ends - time.monotonic()


class _Bench:
    """All parts, in the order in which they count. Each has its share of the time that those before it have left."""

    def __init__(self, case: Case, quick: bool, device: str, seconds: float) -> None:
        self.case, self.quick, self.device = case, quick, device
        self._all = _Time(seconds)
        self._left_out: list[str] = []
        self.card = _card(device)
        self.precisions = _precisions(device)

    def run(self) -> Case:
        parts: dict[str, Callable[[_Time], None]] = {
            "trials": self.trials,
            "precisions": self.of_precisions,
            "servers": self.servers,
            "mps": self.with_mps,
            "judgement": self.judgement,
            "sizes": self.sizes,
        }
        self.peaks = self._peaks()
        for place, (name, part) in enumerate(parts.items()):
            share = SHARES[name] / sum(list(SHARES.values())[place:])
            part(_Time(self._all.left * share))
        self.case.goals = all_of(self.case.goals)
        if self._left_out:
            self.case.notes.append(f"Not measured, as the time was over: {'; '.join(self._left_out)}.")
        return self.case

    # -- the parts -----------------------------------------------------------------------------------------------------

    def trials(self, time_: _Time) -> None:
        """1, 4, 16 and 64 trials of each model."""
        counts = (1, 2) if self.quick else (1, 4, 16, 64)
        models = MODELS[:1] if self.quick else MODELS
        for place, model in enumerate(models):
            of_model = _Time(time_.left / (len(models) - place))
            plans: list[tuple[str, tuple[int, ...]]] = [(model.executor, counts)]
            if model.executor == "vmap":
                plans = [("loop", (1,)), ("graph", (1,)), *plans]
            rows: list[list[Any]] = []
            for executor, numbers in plans:
                rows += self._rows(model, {"executor": executor}, executor, numbers, of_model)
            rows += self._rows(model, {"executor": "vmap"}, BUNDLED, counts, of_model, bundled=True)
            add(self.case, model.title, self.card, rows)

    def of_precisions(self, time_: _Time) -> None:
        """The models that fill a GPU, in each arithmetic that it has."""
        rows: list[list[Any]] = []
        for model in MODELS[:1] if self.quick else MODELS[1:]:
            for precision in self.precisions:
                values = {"precision": precision, "executor": model.executor}
                found = self._rows(model, values, precision, (1,), time_, precision)
                rows += [[model.title, *row] for row in found]
        columns = ("model", "precision", *_COLUMNS[1:])
        self.case.table(f"Precisions, channels last, on {self.card}", columns, rows)

    def servers(self, time_: _Time) -> None:
        """Whole rounds of methods whose server takes many steps, these recorded or not; of DFRD's several trials too."""
        from benchmarks.cases.methods import small

        rows: list[list[Any]] = []
        steps = dict.fromkeys(("server_iters", "server_steps", "gen_steps", "distill_steps"), 2)
        tiny = steps | {"clients": 2, "local_steps": 1, "local_epochs": 0, "batch_size": 4, "server_batch_size": 4}
        # Clients as `auto` has them on a GPU: DFRD's small ones are stacked, FedMD-CG's go one by one (graph: its server's
        # steps alone are recorded).
        plans = [("dfrd", "vmap", PLAIN, 1), ("dfrd", "vmap", RECORDED, 1)]
        plans += [("fedmdcg", "graph", PLAIN, 1), ("fedmdcg", "graph", RECORDED, 1)]
        plans += [("dfrd", "vmap", RECORDED, n) for n in ((2,) if self.quick else (4, 16))]
        for method, executor, server, number in plans:
            values = small(method)
            if self.quick:
                values = _declared(method, values | tiny)
            options = {"method": method, "values": values | {"executor": executor}, "recorded": server == RECORDED}
            found = self._measured(f"{method}, server's steps {server}", number, options, time_)
            if found is None:
                continue
            seconds = statistics.median(found[0])
            split = found[1][0]["split"][1:] or found[1][0]["split"]
            parts = [statistics.median(one[key] for one in split) for key in ("client", "server", "evaluation")]
            rows.append([method, server, number, seconds, *parts, 3600 * number / seconds])
        whole = {row[1]: row[3] for row in rows if row[0] == "dfrd" and row[2] == 1}
        if whole.keys() == {PLAIN, RECORDED}:
            self.case.goals.append(goal(WHOLE_ROUND, whole[PLAIN] / whole[RECORDED]))
        columns = ("method", "server's steps", "trials", "s until all have done a round")
        self.case.table(
            f"Whole rounds on {self.card}",
            (*columns, "clients, s", "server, s", "evaluation, s", "rounds per hour"),
            rows,
        )

    def with_mps(self, time_: _Time) -> None:
        """Trials that share the GPU, with NVIDIA's MPS and without."""
        from fedtune.machine import mps

        rows: list[list[Any]] = []
        model, counts = MODELS[0], (2,) if self.quick else (4, 16)
        before = mps.running()
        with tempfile.TemporaryDirectory(prefix="fedtune-mps-") as folder:
            for place, on in enumerate((False, True)):
                half = _Time(time_.left / (2 - place))
                with mps.beside(Path(folder), 0.5) if on else contextlib.nullcontext() as told:
                    if on and (told is None or mps.PIPES not in os.environ):
                        self.case.notes.append(f"{told} There are no figures with MPS.")
                        continue
                    name = "with MPS" if on else "MPS as it was" if before else "without MPS"
                    rows += self._rows(model, {"executor": model.executor}, name, counts, half)
        self.case.table(f"{model.title}, {model.executor}, with MPS and without on {self.card}", _COLUMNS, rows)

    def judgement(self, time_: _Time) -> None:
        """Whether the faster arithmetics lose accuracy."""
        others = [precision for precision in self.precisions if precision != "fp32"]
        if not others:
            self.case.notes.append("This GPU has no arithmetic but fp32 to be judged.")
            return
        if self.quick:
            tiny = [
                ("fedavg", {"model": "lenet_code", "dataset": "digits", "rounds": 1, "clients": 2, "local_steps": 1})
            ]
            arithmetic.judge(self.case, tiny, others, self.device, fewest=2, most=2)
        else:
            arithmetic.judge(self.case, JUDGED, others, self.device, seconds=time_.left)

    def sizes(self, time_: _Time) -> None:
        """Recorded against stacked steps of several sizes, four trials at once, which decides what `auto` takes."""
        from trainables import models
        from trainables.simulation import executors

        rows: list[list[Any]] = []
        for name, side, channels, batch in SIZES[6:7] if self.quick else SIZES:
            values, _ = federation(name, side, channels, 2 if self.quick else 10, 2 if self.quick else 10, batch)
            shape = (channels, side, side)
            size = executors.operations(models.build(name, shape, 10), shape, batch)
            number = 1 if self.quick else 4
            found = []
            for executor in ("graph", "vmap"):
                options = {"method": "fedavg", "values": values | {"executor": executor}}
                measured = self._measured(f"{name}, {side}, {batch}, {executor}", number, options, time_)
                found.append(None if measured is None else statistics.median(measured[0]))
            chosen = "graph" if size >= executors.FILLS else "vmap"
            rows.append([name, f"{side} × {side} × {channels}", batch, size / 1e9, *found, chosen])
        rows.sort(key=lambda row: row[3])
        self.case.table(
            f"Steps of different sizes, four trials at once on {self.card}",
            ("model", "images", "batch", "10⁹ operations per forward pass", "graph, s", "vmap, s", "`auto`"),
            rows,
        )

    # -- one measurement -----------------------------------------------------------------------------------------------

    def _rows(
        self,
        model: Model,
        changed: Mapping[str, Any],
        name: str,
        counts: Sequence[int],
        time_: _Time,
        precision: str = "fp32",
        bundled: bool = False,
    ) -> list[list[Any]]:
        """A line of the table for each number of trials at once, in as many processes or `bundled` in one; none for
        those that do not fit."""
        clients, steps = (2, 2) if self.quick else (10, model.steps)
        values, _ = federation(model.name, model.side, model.channels, clients, steps)
        products = _operations(model, clients * steps, values["batch_size"])
        rows: list[list[Any]] = []
        single: float | None = None
        took, before = 0.0, 1
        for n in counts:
            began = time.monotonic()
            # A trial more is work, and a process to start where it has its own: no row takes longer than this.
            if took * n / before > time_.left:
                self._left_out.append(f"{model.title}, {name}, {n} trials")
                continue
            options = {"method": "fedavg", "values": values | changed}
            found = self._measured(f"{model.title}, {name}", n, options, time_, bundled)
            if found is None:
                continue
            took, before = time.monotonic() - began, n
            seconds = statistics.median(found[0])
            rate = n / seconds
            single = single or rate / n
            share = 100 * products * rate / (1e12 * self.peaks[precision]) if self.peaks.get(precision) else None
            memory = max(one["gpu_mib"] for one in found[1]) / (n if bundled else 1)
            rows.append([name, n, seconds, 3600 * rate, rate / single, share, memory])
        return rows

    def _measured(
        self, name: str, number: int, options: Mapping[str, Any], time_: _Time, bundled: bool = False
    ) -> tuple[list[float], list[dict[str, Any]]] | None:
        """Seconds until each of `number` processes, or one with so many trials `bundled`, has done its work, of as many
        turns as there is time for, five at most; and what they say of themselves. None, which is noted, where there is no time or a process died."""
        from fedtune.machine import resources

        what = f"{name}, {number} trial{'s' * (number > 1)}"
        if time_.left <= 0:
            self._left_out.append(what)
            return None
        names = ["bundle"] if bundled else [f"trial {i}" for i in range(number)]
        try:
            with Processes(f"gpu, {what}") as processes:
                for one in names:
                    asked = dict(options) | {"device": self.device}
                    asked |= {"trials": number} if bundled else {"share": 1 / number}
                    work, threads = "GpuBundle" if bundled else "GpuRounds", resources.cores() // len(names)
                    processes.start(one, Arm(work, asked, threads=max(1, threads)))
                warm, _ = processes.run(names)
                seconds: list[float] = []
                while len(seconds) < (1 if self.quick else 5) and (not seconds or time_.left > max(warm, *seconds)):
                    seconds.append(processes.run(names)[0])
                say(f"  {what}: {statistics.median(seconds):.3g} s, {len(seconds)} turns")
                return seconds, [processes.describe(one) for one in names]
        except RuntimeError as error:
            last = str(error).strip().splitlines()[-1]
            self.case.notes.append(f"{what} could not be measured: {last}")
            return None

    def _peaks(self) -> dict[str, float]:
        """10¹² operations a second by precision: stated for the card, else of a large matrix product."""
        known = next((peaks for name, peaks in PEAKS.items() if self.card.startswith(name)), None)
        if known is not None:
            return known
        options = {"device": self.device, "precisions": self.precisions, "side": 64 if self.quick else 8192}
        with Processes("gpu, peak") as processes:
            processes.start("product", Arm("Peak", options))
            processes.run(["product"])
            found: dict[str, float] = processes.describe("product")["peaks"]
        self.case.notes.append("The card's peak was measured by a product of two matrices.")
        return found


_COLUMNS = (
    "executor",
    "trials",
    "s until all have done a round",
    "rounds per hour",
    "times one trial",
    "per cent of the peak",
    "GPU memory per trial, MiB",
)


def add(case: Case, title: str, device: str, rows: list[list[Any]]) -> None:
    """A model's table; for LeNet-5, of which a GPU is idle most of the time, what must be reached."""
    case.table(f"{title} on {device}", _COLUMNS, rows)
    rates = {(executor, trials): rate for executor, trials, _, rate, *_ in rows}
    pairs = {RECORDED_STEPS: (("graph", 1), ("loop", 1)), FOUR: (("vmap", 4), ("vmap", 1))}
    for text, (one, other) in pairs.items() if title == "LeNet-5" else ():
        if {one, other} <= rates.keys():
            case.goals.append(goal(text, rates[one] / rates[other]))
    apart = [rate for (executor, _), rate in rates.items() if executor != BUNDLED]
    if BUNDLE.format(title) in GOALS and (BUNDLED, 64) in rates and apart:
        case.goals.append(goal(BUNDLE.format(title), rates[BUNDLED, 64] / max(apart)))


def goal(text: str, got: float | None) -> Goal:
    """The goal of this text."""
    return Goal(text, GOALS[text], got, unit="×")


def all_of(measured: Sequence[Goal]) -> list[Goal]:
    """All goals in their order; those that were not measured have no figure."""
    found = {one.text: one for one in measured}
    return [found.get(text) or goal(text, None) for text in GOALS]


def _operations(model: Model, steps: int, batch: int) -> float:
    """Operations of so many steps: the backward pass has twice those of the forward pass."""
    from trainables import models
    from trainables.simulation import executors

    shape = (model.channels, model.side, model.side)
    return 3.0 * steps * executors.operations(models.build(model.name, shape, 10), shape, batch)


def _card(device: str) -> str:
    import torch

    return torch.cuda.get_device_name() if device == "cuda" else device


def _precisions(device: str) -> list[str]:
    """The arithmetics that the device has. One that pretends to be a GPU has all, and TF32 rounds nothing there."""
    import torch

    from trainables.models import precision

    if device != "cuda":
        return ["fp32", "tf32", "bf16"]
    cuda = torch.device("cuda")
    has = {"tf32": precision.capability(cuda) >= precision.NEEDED, "bf16": precision.supported(cuda)}
    return ["fp32", *(name for name, is_there in has.items() if is_there)]


def _declared(method: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the values that the method has."""
    from trainables.registry import declared

    return {key: value for key, value in values.items() if key in declared(method)}
