"""FedAvg rounds without a framework: as one writes them first, and as one writes them after a week with a profiler.

Both take federation, first weights and draws from fedtune, so that all arms must reach the same model up to rounding,
and neither uses its training, aggregation or evaluation.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks import plain_models
from benchmarks.fingerprint import fingerprint
from trainables import data
from trainables.rng import Rng
from trainables.simulation.rounds import Simulation


class FedAvg:
    """What both loops start from. `run()` is one round; `describe()` says where it has got to."""

    def __init__(self, values: Mapping[str, Any], seed: int = 0) -> None:
        simulation = Simulation("fedavg", values, seed, torch.device("cpu"))
        source = data.load(values["dataset"])
        params = simulation.global_model()
        assert params is not None
        self.values, self.seed, self.round, self.accuracy = values, seed, 0, 0.0
        self.source, self.initial = source, params
        self.clients = [client.indices.clone() for client in simulation.data.clients]
        self.labels = torch.from_numpy(source.train_y.copy())
        self.test_labels = torch.from_numpy(source.test_y.copy())

    def draws(self, client: int, samples: int) -> Tensor:
        """Positions `(steps, batch)` of this round's mini-batches: shuffles end to end, cut."""
        steps, batch = self.values["local_steps"], min(self.values["batch_size"], samples)
        generator = Rng(self.seed).child("round", self.round, "client", client).torch("batches")
        order = torch.cat([torch.randperm(samples, generator=generator) for _ in range(-(-steps * batch // samples))])
        return order[: steps * batch].view(steps, batch)

    def model(self) -> nn.Module:
        """The global model."""
        raise NotImplementedError

    def describe(self) -> dict[str, Any]:
        """The model's fingerprint and the accuracy."""
        return {"model": fingerprint(self.model().state_dict()), "accuracy": self.accuracy}


class Plain(FedAvg):
    """A copy of the model for every client, SGD as it comes, batches picked from normalised tensors, the loss read at
    every step."""

    def __init__(self, values: Mapping[str, Any], seed: int = 0) -> None:
        super().__init__(values, seed)
        mean, std = (torch.tensor(v).view(-1, 1, 1) for v in (self.source.mean, self.source.std))
        self.x, self.test = (
            (torch.from_numpy(part.copy()).float() / 255 - mean) / std
            for part in (self.source.train_x, self.source.test_x)
        )
        self.module = plain_models.build(values["model"], self.source.shape[0], self.initial)
        self.loss = 0.0

    def model(self) -> nn.Module:
        return self.module

    def run(self) -> None:
        """One round and its evaluation."""
        self.round += 1
        states = []
        for client, indices in enumerate(self.clients):
            local = copy.deepcopy(self.module)
            local.train()
            optimiser = torch.optim.SGD(local.parameters(), lr=self.values["lr"])
            losses = []
            for chosen in indices[self.draws(client, len(indices))]:
                optimiser.zero_grad()
                loss = F.cross_entropy(local(self.x[chosen]), self.labels[chosen])
                loss.backward()
                optimiser.step()
                losses.append(loss.item())
            self.loss = sum(losses) / len(losses)
            states.append(local.state_dict())
        total = sum(map(len, self.clients))
        self.module.load_state_dict(
            {
                name: sum(
                    state[name] * (len(indices) / total) for state, indices in zip(states, self.clients, strict=True)
                )
                for name in states[0]
            }
        )
        self.module.eval()
        with torch.no_grad():
            right = [
                (self.module(x).argmax(dim=1) == y).float()
                for x, y in zip(self.test.split(1024), self.test_labels.split(1024), strict=True)
            ]
        self.accuracy = float(torch.cat(right).mean())


class Optimised(FedAvg):
    """Every change that makes it faster on a CPU: one model, channels last throughout, pooling before ReLU, one gather
    and one normalisation per client, the fused optimiser, no synchronisation inside a client's training."""

    def __init__(self, values: Mapping[str, Any], seed: int = 0) -> None:
        super().__init__(values, seed)
        from trainables import models

        mean, std = (torch.tensor(v).view(-1, 1, 1) for v in (self.source.mean, self.source.std))
        self.shift, self.scale = 255 * mean, 1 / (255 * std)
        self.images, self.test = (torch.from_numpy(part.copy()) for part in (self.source.train_x, self.source.test_x))
        self.module = models.build(values["model"], self.source.shape, self.source.classes).to(
            memory_format=torch.channels_last
        )
        self.weights = list(self.module.parameters())
        with torch.no_grad():
            for weight, (_, value) in zip(self.weights, self._named(self.initial), strict=True):
                weight.copy_(value)
        self.start = [w.detach().clone() for w in self.weights]

    def _named(self, params: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        for name, _ in self.module.named_parameters():
            yield name, params[name]

    def model(self) -> nn.Module:
        return self.module

    def _prepare(self, images: Tensor) -> Tensor:
        return images.to(torch.float32, memory_format=torch.channels_last).sub_(self.shift).mul_(self.scale)

    def run(self) -> None:
        """One round and its evaluation."""
        self.round += 1
        total = sum(map(len, self.clients))
        summed = [torch.zeros_like(w, dtype=torch.float64) for w in self.start]
        losses = torch.zeros(())
        self.module.train()
        for client, indices in enumerate(self.clients):
            with torch.no_grad():
                torch._foreach_copy_(self.weights, self.start)
            optimiser = torch.optim.SGD(self.weights, lr=self.values["lr"], fused=True)
            drawn = self.draws(client, len(indices))
            chosen = indices[drawn.flatten()]
            batch = drawn.shape[1]
            for x, y in zip(
                self._prepare(self.images[chosen]).split(batch), self.labels[chosen].split(batch), strict=True
            ):
                optimiser.zero_grad(set_to_none=True)
                loss = F.cross_entropy(self.module(x), y)
                loss.backward()
                optimiser.step()
                losses += loss.detach()
            with torch.no_grad():
                for into, weight in zip(summed, self.weights, strict=True):
                    into.add_(weight, alpha=len(indices) / total)
        self.start = [s.to(torch.float32, memory_format=torch.preserve_format) for s in summed]
        with torch.inference_mode():
            torch._foreach_copy_(self.weights, self.start)
            self.module.eval()
            right = [
                (self.module(self._prepare(x)).argmax(dim=1) == y).float()
                for x, y in zip(self.test.split(1024), self.test_labels.split(1024), strict=True)
            ]
            self.accuracy = float(torch.cat(right).mean())
