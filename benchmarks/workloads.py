"""What a process of a benchmark can do. Each class here, and each object that a function here returns, has `run()`, one
unit of work, and `describe()`.

`run()` may return seconds of its own where a part of the work is what is measured.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol


class Unit(Protocol):
    """One unit of work after another."""

    def run(self) -> float | None: ...

    def describe(self) -> dict[str, Any]: ...


def plain(values: Mapping[str, Any]) -> Unit:
    """FedAvg as one writes it first."""
    from benchmarks.reference import Plain

    return Plain(values)


def optimised(values: Mapping[str, Any]) -> Unit:
    """FedAvg by hand with every change that makes it faster."""
    from benchmarks.reference import Optimised

    return Optimised(values)


def floor(values: Mapping[str, Any], shape: list[int], clients: int, test: int) -> Unit:
    """The kernels of such a round alone."""
    from benchmarks.floor import Floor

    return Floor(values, (shape[0], shape[1], shape[2]), clients, test)


def dfrd_server(values: Mapping[str, Any], arm: str) -> Unit:
    """DFRD's server phase: `naive`, `frozen`, or `fedtune`."""
    from benchmarks import server

    return server.Fedtune(values) if arm == "fedtune" else server.Naive(values, frozen=arm == "frozen")


class Rounds:
    """Rounds of one trial as fedtune runs them. `describe` has the first seed's last row and the split of its seconds
    in every round, and the accuracies of all seeds."""

    def __init__(
        self,
        method: str,
        values: Mapping[str, Any],
        rounds: int = 1,
        device: str = "cpu",
        seeds: Sequence[int] = (0,),
        begin: Callable[..., Any] | None = None,
    ) -> None:
        from trainables.simulation.replicates import Replicates

        self.trial = (begin or Replicates)(method, values, seeds, device=device)
        self.rounds = rounds
        self.row: dict[str, Any] = {}
        self.rows: list[dict[str, Any]] = []
        self.split: list[dict[str, float]] = []

    def run(self) -> None:
        for _ in range(self.rounds):
            self.rows = self.trial.step()
            self.row = self.rows[0]
            self.split.append(
                {key.removeprefix("seconds_"): value for key, value in self.row.items() if key.startswith("seconds_")}
            )

    def describe(self) -> dict[str, Any]:
        from benchmarks.fingerprint import fingerprint

        models = self.trial.models()
        row = {key: value for key, value in self.row.items() if isinstance(value, (int, float))}
        return {
            "model": fingerprint(next(iter(models.values()))[0]) if models else None,
            "row": row,
            "split": self.split,
            "accuracies": [row.get("global_accuracy") for row in self.rows],
        }


class PlainRounds(Rounds):
    """The same in a process whose PyTorch has been made plain (`plain_torch.apply`)."""


class ForgetfulRounds(Rounds):
    """The same, but what was measured of a model is not remembered."""

    def run(self) -> None:
        from unittest import mock

        from trainables.simulation import rounds

        with mock.patch.object(rounds, "is_same", lambda *_: False):
            super().run()


class SavedRounds(Rounds):
    """Rounds with a checkpoint after each. `describe` has also, of each: its seconds (`round`), those of its checkpoint
    (`seconds`), and the MB that were `written` and then `kept`."""

    def __init__(self, method: str, values: Mapping[str, Any]) -> None:
        from trainables.worker.trial_folder import TrialFolder

        super().__init__(method, values)
        self._made = tempfile.TemporaryDirectory(prefix="fedtune-bench-")
        self._folder = TrialFolder(Path(self._made.name) / "trials" / "0000")
        self.trial.keep_in(self._folder.path)
        self.saved: list[dict[str, float]] = []

    def run(self) -> None:
        started = time.perf_counter()
        super().run()
        self._folder.append(self.rows)
        ended, before = time.perf_counter(), self._files()
        self._folder.save_checkpoint(self.trial, last=True)
        saved, after = time.perf_counter(), self._files()
        new = [size for file, size in after.items() if file not in before]
        of = {"written": sum(new) / 1e6, "kept": sum(after.values()) / 1e6}
        self.saved.append({"round": ended - started, "seconds": saved - ended, **of})

    def _files(self) -> dict[tuple[str, int, int], int]:
        found = [(path.name, path.stat()) for path in self._folder.path.iterdir()]
        return {(name, stat.st_ino, stat.st_mtime_ns): stat.st_size for name, stat in found}

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"saved": self.saved}


class Beside:
    """A FedAvg round by hand and one of fedtune's, in turn within one process: processes of one program differ in speed
    by several per cent for as long as they live, by the place of their memory, which is as much as fedtune's
    bookkeeping may cost."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.units: dict[str, Unit] = {"optimised": optimised(values), "fedtune": Rounds("fedavg", values)}
        self.seconds: dict[str, list[float]] = {name: [] for name in self.units}

    def run(self) -> None:
        for name, unit in self.units.items():
            started = time.perf_counter()
            unit.run()
            self.seconds[name].append(time.perf_counter() - started)

    def describe(self) -> dict[str, Any]:
        return {"seconds": self.seconds}


class ClientPhases:
    """A round of every trial in turn within one process, see `Beside`. `trials` has a method and its values by name;
    `describe` the seconds of their client phases and of their servers' part."""

    def __init__(self, trials: Mapping[str, Sequence[Any]]) -> None:
        from trainables.simulation.replicates import Replicates

        self.trials = {name: Replicates(method, values, (0,)) for name, (method, values) in trials.items()}
        self.seconds: dict[str, list[float]] = {name: [] for name in trials}
        self.server: dict[str, list[float]] = {name: [] for name in trials}

    def run(self) -> None:
        for name, trial in self.trials.items():
            row = trial.step()[0]
            self.seconds[name].append(row["seconds_client"])
            self.server[name].append(row["seconds_server"])

    def describe(self) -> dict[str, Any]:
        return {"seconds": self.seconds, "server": self.server}


class BareTrials:
    """Stand-in trials one after the other, without anything around them."""

    def __init__(self, trials: int, rounds: int, products: int) -> None:
        self.trials, self.rounds, self.products = trials, rounds, products

    def run(self) -> None:
        from benchmarks.standin import Standin

        for _ in range(self.trials):
            trial = Standin("fedavg", {"rounds": self.rounds}, (0,), products=self.products)
            for _ in range(self.rounds):
                trial.step()

    def describe(self) -> dict[str, Any]:
        return {}


class BareFederations:
    """FedAvg's trials one after the other, each from its data on, without anything around them."""

    def __init__(self, trials: int, rounds: int, values: Mapping[str, Any]) -> None:
        self.trials, self.rounds, self.values = trials, rounds, values

    def run(self) -> None:
        from trainables.simulation.replicates import Replicates

        for _ in range(self.trials):
            trial = Replicates("fedavg", self.values, (0,))
            for _ in range(self.rounds):
                trial.step()

    def describe(self) -> dict[str, Any]:
        return {}


class GpuRounds(Rounds):
    """Rounds on a GPU with a share of its memory; the clock stops when the GPU is done. The steps of a server that
    could be `recorded` may be taken one by one. In tests it may be the device that pretends to be one
    (`tests/pretend_device.py`)."""

    def __init__(
        self,
        method: str,
        values: Mapping[str, Any],
        share: float = 1.0,
        device: str = "cuda",
        rounds: int = 1,
        seeds: Sequence[int] = (0,),
        recorded: bool = True,
    ) -> None:
        from trainables.worker import process

        self.is_cuda = device == "cuda"
        if self.is_cuda:
            process.use_gpu(share)
            super().__init__(method, values, rounds, device, seeds)
        else:
            from tests.contracts.test_pretend_device import started

            with self._there():
                super().__init__(method, values, rounds, device, seeds, begin=started)
        if not recorded:
            for simulation in self.trial.simulations:
                simulation.server_graphs, simulation.fed = None, replace(simulation.fed, record=None)

    def _there(self) -> contextlib.AbstractContextManager[Any]:
        if self.is_cuda:
            return contextlib.nullcontext()
        from tests.pretend_device import pretending

        return pretending()

    def run(self) -> None:
        import torch

        with self._there():
            super().run()
        if self.is_cuda:
            torch.cuda.synchronize()

    def describe(self) -> dict[str, Any]:
        import torch

        reserved = torch.cuda.max_memory_reserved() if self.is_cuda else 0
        with self._there():
            return super().describe() | {"gpu_mib": reserved / 2**20}


class GpuBundle(GpuRounds):
    """Rounds of several trials in this one process, bundled: each has a learning rate of its own."""

    def __init__(self, method: str, values: Mapping[str, Any], trials: int, device: str = "cuda") -> None:
        from tests.contracts.test_pretend_device import started

        rates = [0.01 * (1 + place / trials) for place in range(trials)]
        super().__init__(method, {**values, "lr": rates[0]}, device=device)
        with self._there():
            self.others = [started(method, {**values, "lr": rate}, (0,), device) for rate in rates[1:]]

    def run(self) -> None:
        import torch

        from trainables.simulation.replicates import step_together

        with self._there():
            for rows in step_together([self.trial, *self.others]):
                if isinstance(rows, Exception):
                    raise rows
        if self.is_cuda:
            torch.cuda.synchronize()


class Peak:
    """A product of two square matrices in each precision: 10¹² operations a second, the best of five."""

    def __init__(self, device: str, precisions: Sequence[str], side: int) -> None:
        self.device, self.precisions, self.side = device, precisions, side
        self.peaks: dict[str, float] = {}

    def run(self) -> None:
        import torch

        from trainables.models.precision import arithmetic

        is_cuda = self.device == "cuda"
        for precision in self.precisions:
            kind = torch.bfloat16 if precision == "bf16" else torch.float32
            one = torch.ones(self.side, self.side, dtype=kind, device=self.device if is_cuda else "cpu")
            best = float("inf")
            with arithmetic(precision):
                for _ in range(5):
                    started = time.perf_counter()
                    one @ one
                    if is_cuda:
                        torch.cuda.synchronize()
                    best = min(best, time.perf_counter() - started)
            self.peaks[precision] = 2 * self.side**3 / best / 1e12

    def describe(self) -> dict[str, Any]:
        return {"peaks": self.peaks}
