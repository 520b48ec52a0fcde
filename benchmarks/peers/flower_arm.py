"""Flower: FedAvg with the message API in its simulation, `actors` Ray actors of one core each."""

from __future__ import annotations

import os

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.peers import turns
from benchmarks.peers.flower_client import app as client_app

#: More than will be asked for.
ROUNDS = 10_000


def main() -> None:
    turn = turns.Turns()
    task = turn.task
    torch.set_num_threads(1)
    data, model = turns.arrays(task["dataset"]), turns.first_model()
    server_app = ServerApp()

    def evaluate(round_: int, arrays: ArrayRecord) -> MetricRecord:
        model.load_state_dict(arrays.to_torch_state_dict())
        turn.accuracy = turns.accuracy(model, data["x_test"], data["y_test"])
        if not turn.next():
            import ray

            ray.shutdown()
            os._exit(0)
        return MetricRecord({"accuracy": turn.accuracy})

    @server_app.main()
    def serve(grid: Grid, context: Context) -> None:
        strategy = FedAvg(
            fraction_train=1.0,
            fraction_evaluate=0.0,
            min_train_nodes=task["clients"],
            min_available_nodes=task["clients"],
        )
        config = ConfigRecord(
            {"path": task["dataset"], "clients": task["clients"], "lr": task["lr"], "batch_size": task["batch_size"]}
        )
        strategy.start(
            grid=grid,
            initial_arrays=ArrayRecord(model.state_dict()),
            train_config=config,
            num_rounds=ROUNDS,
            evaluate_fn=evaluate,
        )

    run_simulation(
        server_app=server_app,
        client_app=client_app,
        num_supernodes=task["clients"],
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0},
            "init_args": {"num_cpus": task["actors"], "include_dashboard": False},
        },
    )


if __name__ == "__main__":
    main()
