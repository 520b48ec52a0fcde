"""Taking turns inside a simulator that owns its loop: between two rounds it waits here until it is told to go on."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from benchmarks.plain_models import LeNet


class Turns:
    """Reads what to do from stdin and answers on stdout, which the simulator's own output no longer reaches."""

    def __init__(self) -> None:
        self.answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self.task: dict[str, Any] = json.loads(sys.stdin.readline())["options"]
        self.started: float | None = None
        self.accuracy = 0.0

    def _answer(self, found: dict[str, Any]) -> None:
        self.answers.write(json.dumps(found) + "\n")
        self.answers.flush()

    def next(self) -> bool:
        """Answers for the round that has ended, and waits for the next. False where there is to be none."""
        if self.started is None:
            self._answer({"ready": True})
        else:
            self._answer({"seconds": time.perf_counter() - self.started})
        for line in sys.stdin:
            if json.loads(line)["do"] == "run":
                self.started = time.perf_counter()
                return True
            self._answer({"accuracy": self.accuracy})
        return False


def arrays(path: str) -> dict[str, torch.Tensor]:
    """The benchmark's images, normalised `(n, 1, side, side)`, and labels."""
    with np.load(path) as archive:
        images = {part: torch.from_numpy(archive[f"x_{part}"]).float()[:, None] / 255 for part in ("train", "test")}
        labels = {part: torch.from_numpy(archive[f"y_{part}"]) for part in ("train", "test")}
    mean, std = images["train"].mean(), images["train"].std()
    return {f"x_{part}": (x - mean) / std for part, x in images.items()} | {
        f"y_{part}": y for part, y in labels.items()
    }


def first_model() -> LeNet:
    """The same first weights for everybody."""
    torch.manual_seed(0)
    return LeNet()


def train(model: LeNet, x: torch.Tensor, y: torch.Tensor, lr: float, batch: int) -> float:
    """One epoch of SGD over shuffled samples, as the plain loop does it; returns the mean loss."""
    model.train()
    optimiser = torch.optim.SGD(model.parameters(), lr=lr)
    losses = []
    for chosen in torch.randperm(len(x)).split(batch):
        optimiser.zero_grad()
        loss = F.cross_entropy(model(x[chosen]), y[chosen])
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


@torch.no_grad()
def accuracy(model: LeNet, x: torch.Tensor, y: torch.Tensor) -> float:
    """Share of right predictions."""
    model.eval()
    return float((model(x).argmax(dim=1) == y).float().mean())
