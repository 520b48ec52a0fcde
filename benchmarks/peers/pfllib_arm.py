"""PFLlib: its own FedAvg, Ditto or FedProto, servers and clients as they are, one process.

PFLlib is a folder of programs and no package: it is read from the folder that the task names. It reads a client's
samples from files beside its folder of work, for every round anew; here that folder is a temporary one."""

from __future__ import annotations

import copy
import importlib
import os
import sys
import tempfile
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.peers import turns

#: More than will be asked for.
ROUNDS = 10_000
SERVERS = {
    "fedavg": ("serveravg", "FedAvg"),
    "ditto": ("serverditto", "Ditto"),
    "fedproto": ("serverproto", "FedProto"),
}


def main() -> None:
    turn = turns.Turns()
    task = turn.task
    torch.set_num_threads(1)
    torch.manual_seed(0)
    sys.path.insert(0, str(Path(task["folder"]) / "system"))
    models: Any = importlib.import_module("flcore.trainmodel.models")
    file, name = SERVERS[task["method"]]
    server_class = getattr(importlib.import_module(f"flcore.servers.{file}"), name)
    model = models.FedAvgCNN(in_features=1, num_classes=10, dim=1024)
    if name != "Ditto":  # as PFLlib's own start has it
        head = copy.deepcopy(model.fc)
        model.fc = nn.Identity()
        model = models.BaseHeadSplit(model, head)
    with tempfile.TemporaryDirectory() as folder:
        _write(Path(folder) / "dataset" / "images", turns.arrays(task["dataset"]), task["clients"])
        work = Path(folder) / "system"
        work.mkdir()
        os.chdir(work)
        server = server_class(_arguments(task, name, model), 0)
        select = server.select_clients

        def next_round() -> Any:
            """The first thing that each of its rounds does."""
            turn.accuracy = float((server.rs_test_acc or [0.0])[-1])
            if not turn.next():
                raise _Ended
            return select()

        server.select_clients = next_round
        try:
            server.train()
        except _Ended:
            os.chdir("/")


class _Ended(Exception):
    """There is no more work."""


def _write(folder: Path, data: dict[str, torch.Tensor], clients: int) -> None:
    """The equal shares of all clients, where PFLlib looks for them."""
    for part in ("train", "test"):
        (folder / part).mkdir(parents=True)
        x, y = data[f"x_{part}"].numpy(), data[f"y_{part}"].numpy()
        each = len(x) // clients
        for client in range(clients):
            share = slice(client * each, (client + 1) * each)
            np.savez(folder / part / f"{client}.npz", data=np.array({"x": x[share], "y": y[share]}, dtype=object))


def _arguments(task: dict[str, Any], algorithm: str, model: nn.Module) -> Namespace:
    """What PFLlib's command line would give: its defaults, and the task's federation."""
    return Namespace(
        algorithm=algorithm,
        model=model,
        dataset="images",
        num_classes=10,
        device="cpu",
        global_rounds=ROUNDS,
        num_clients=task["clients"],
        local_epochs=1,
        plocal_epochs=1,
        batch_size=task["batch_size"],
        local_learning_rate=task["lr"],
        eval_gap=1 if task["evaluates"] else ROUNDS + 2,
        lamda=1.0,
        mu=task["mu"],
        join_ratio=1.0,
        random_join_ratio=False,
        learning_rate_decay=False,
        learning_rate_decay_gamma=0.99,
        few_shot=0,
        time_select=False,
        time_threthold=10_000,
        goal="test",
        save_folder_name="items",
        top_cnt=100,
        auto_break=False,
        client_drop_rate=0.0,
        train_slow_rate=0.0,
        send_slow_rate=0.0,
        dlg_eval=False,
        dlg_gap=100,
        batch_num_per_client=2,
        num_new_clients=0,
        fine_tuning_epoch_new=0,
    )


if __name__ == "__main__":
    main()
