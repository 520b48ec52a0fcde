"""A stand-in for a federation: a fixed amount of arithmetic per round, or sleep, with the engine's interface. It tells
when it worked.

Its work is a number of matrix products, not a length of time: what disturbs a trial makes it slower, as it would a
federation."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

#: Rows and columns of the matrices that are multiplied.
SIDE = 192


def products(seconds: float) -> int:
    """How many products take about that long here, on one thread."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    a = torch.randn(SIDE, SIDE)
    found = []
    for _ in range(5):
        started = time.perf_counter()
        for _ in range(2000):
            a @ a
        found.append((time.perf_counter() - started) / 2000)
    torch.set_num_threads(before)
    return max(1, round(seconds / sorted(found)[2]))


class Standin:
    """A trial of `values["rounds"]` rounds of so many `products` and seconds of `sleep` each; accuracies follow from
    the parameters."""

    def __init__(
        self,
        method: str,
        values: Mapping[str, Any],
        seeds: Sequence[int],
        *,
        device: str = "cpu",
        data_dir: str | None = None,
        products: int = 0,
        sleep: float = 0.0,
        diary: str | None = None,
    ) -> None:
        self.sleep = sleep
        self.values, self.seeds, self.rounds, self.round, self.products, self.diary = (
            dict(values),
            tuple(seeds),
            int(values["rounds"]),
            0,
            products,
            diary,
        )
        self._name = f"{os.getpid()}-{time.time_ns()}"
        self._note("begin")

    def _note(self, what: str) -> None:
        if self.diary is not None:
            with open(self.diary, "a", encoding="utf-8") as file:
                file.write(json.dumps([what, time.time(), self._name]) + "\n")

    def step(self) -> list[dict[str, Any]]:
        import torch

        self.round += 1
        if self.products:
            a = torch.eye(SIDE)
            for _ in range(self.products):
                a @ a
        if self.sleep:
            time.sleep(self.sleep)
        value = (1 - (float(self.values.get("momentum", 0.5)) - 0.3) ** 2) * (1 - 0.5**self.round)
        self._note("end" if self.round >= self.rounds else "round")
        return [
            {
                "round": self.round,
                "seed": seed,
                "train_loss": 1 - value,
                "seconds": 0.01,
                "val_global_accuracy": value,
                "global_accuracy": value,
            }
            for seed in self.seeds
        ]

    def keep_in(self, folder: Path) -> None:
        """Nothing is kept."""

    def save(self, path: str | Path, *, merged: bool = False) -> tuple[str, ...]:
        Path(path).write_text(str(self.round))
        return ()

    def load(self, path: str | Path) -> tuple[str, ...]:
        self.round = int(Path(path).read_text())
        return ()

    def partition(self) -> dict[str, Any]:
        return {str(seed): [[1]] for seed in self.seeds} | {"hash": {str(seed): "0" for seed in self.seeds}}

    def keep_models(self) -> None:
        """There are none."""

    def confusion(self) -> dict[int, Any]:
        return {}

    def personal_models(self) -> dict[int, Any]:
        return {}

    def models(self) -> dict[int, Any]:
        return {}
