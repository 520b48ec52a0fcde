"""What a process of a benchmark can do. Each function prepares and returns an object with `run()`, one unit of work,
and `describe()`.

`run()` may return seconds of its own where a part of the work is what is measured.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
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
        self, method: str, values: Mapping[str, Any], rounds: int = 1, device: str = "cpu", seeds: Sequence[int] = (0,)
    ) -> None:
        from trainables.simulation.replicates import Replicates

        self.trial, self.rounds = Replicates(method, values, seeds, device=device), rounds
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


def rounds(
    method: str, values: Mapping[str, Any], rounds: int = 1, device: str = "cpu", seeds: Sequence[int] = (0,)
) -> Unit:
    """Whole rounds of a method."""
    return Rounds(method, values, rounds, device, seeds)


class Beside:
    """A FedAvg round by hand and one of fedtune's, in turn within one process: processes of one program differ in speed
    by several per cent for as long as they live, by the place of their memory, which is as much as fedtune's
    bookkeeping may cost."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.units: dict[str, Unit] = {"optimised": optimised(values), "fedtune": rounds("fedavg", values)}
        self.seconds: dict[str, list[float]] = {name: [] for name in self.units}

    def run(self) -> None:
        for name, unit in self.units.items():
            started = time.perf_counter()
            unit.run()
            self.seconds[name].append(time.perf_counter() - started)

    def describe(self) -> dict[str, Any]:
        return {"seconds": self.seconds}


def beside(values: Mapping[str, Any]) -> Unit:
    """What fedtune's bookkeeping costs."""
    return Beside(values)


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


def client_phases(trials: Mapping[str, Sequence[Any]]) -> Unit:
    """What a client phase costs under each method."""
    return ClientPhases(trials)


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


def bare_trials(trials: int, rounds: int, products: int) -> Unit:
    """What a search runs, without the search."""
    return BareTrials(trials, rounds, products)


class GpuRounds(Rounds):
    """Rounds on a GPU with a share of its memory; the clock stops when the GPU is done."""

    def __init__(self, values: Mapping[str, Any], share: float) -> None:
        from trainables.worker import process

        process.use_gpu(share)
        super().__init__("fedavg", values, device="cuda")

    def run(self) -> None:
        import torch

        super().run()
        torch.cuda.synchronize()

    def describe(self) -> dict[str, Any]:
        import torch

        return super().describe() | {"gpu_mib": torch.cuda.max_memory_reserved() / 2**20}


def gpu_rounds(values: Mapping[str, Any], share: float) -> Unit:
    """FedAvg rounds on a GPU."""
    return GpuRounds(values, share)


def plain_rounds(method: str, values: Mapping[str, Any], rounds: int = 1) -> Unit:
    """Whole rounds of a method, in a process whose PyTorch has been made plain (`plain_torch.apply`)."""
    return Rounds(method, values, rounds)
