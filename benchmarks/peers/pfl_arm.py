"""pfl-research: FederatedAveraging on its simulated backend; under torchrun with as many processes as it is started
with.

Rank 0 takes the turns; the others wait for it inside a broadcast."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.nn.functional as F
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.callback.central_evaluation import CentralEvaluationCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel

from benchmarks.peers import turns

RANK = int(os.environ.get("RANK", "0"))


class Module(turns.LeNet):
    """LeNet with the two functions that pfl wants."""

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.train()
        return F.cross_entropy(self(x), y)

    @torch.no_grad()
    def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Weighted]:
        self.eval()
        return {"accuracy": Weighted(float((self(x).argmax(dim=1) == y).sum()), len(y))}


class Wait(TrainingProcessCallback[Any]):
    """The last callback: a round ends here, and the next begins when told."""

    def __init__(self, turn: turns.Turns | None) -> None:
        self.turn = turn

    def _go_on(self) -> bool:
        more = torch.tensor([0])
        if self.turn is not None:
            more[0] = int(self.turn.next())
        if torch.distributed.is_initialized():
            torch.distributed.broadcast(more, 0)
        return bool(more[0])

    def on_train_begin(self, *, model: Any) -> Metrics:
        if not self._go_on():
            os._exit(0)
        return Metrics()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: Any, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        found = dict(aggregate_metrics.to_simple_dict())
        if self.turn is not None:
            self.turn.accuracy = next(
                (float(value) for name, value in found.items() if "Central val | accuracy" in str(name)), 0.0
            )
        if not self._go_on():
            os._exit(0)
        return False, Metrics()


def main() -> None:
    turn = turns.Turns() if RANK == 0 else None
    torch.set_num_threads(1)
    task = turn.task if turn is not None else {}
    path, clients, lr, batch = (
        os.environ[name] for name in ("BENCH_DATASET", "BENCH_CLIENTS", "BENCH_LR", "BENCH_BATCH")
    )
    assert not task or task["dataset"] == path
    data = turns.arrays(path)
    each = len(data["x_train"]) // int(clients)
    shares = {c: slice(c * each, (c + 1) * each) for c in range(int(clients))}

    def user(client: int) -> PyTorchTensorDataset:
        return PyTorchTensorDataset(
            (data["x_train"][shares[client]], data["y_train"][shares[client]]), user_id=str(client)
        )

    users = FederatedDataset(user, get_user_sampler("minimize_reuse", list(shares)))
    module = Module()
    module.load_state_dict(turns.first_model().state_dict())
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    test = PyTorchTensorDataset((data["x_test"], data["y_test"]))
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=10_000,
            evaluation_frequency=10_000,
            train_cohort_size=int(clients),
            val_cohort_size=0,
        ),
        SimulatedBackend(training_data=users, val_data=users, postprocessors=[WeightByDatapoints()]),
        model,
        NNTrainHyperParams(local_learning_rate=float(lr), local_num_epochs=1, local_batch_size=int(batch)),
        NNEvalHyperParams(local_batch_size=1024),
        callbacks=[CentralEvaluationCallback(test, NNEvalHyperParams(local_batch_size=1024)), Wait(turn)],
    )


if __name__ == "__main__":
    main()
