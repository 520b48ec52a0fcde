"""The client of Flower's app; a module of its own, so that an actor reads the data once and not with every message."""

from __future__ import annotations

from functools import cache

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from benchmarks.peers import turns

app = ClientApp()


@cache
def _kept(path: str) -> tuple[dict[str, torch.Tensor], turns.LeNet]:
    torch.set_num_threads(1)
    return turns.arrays(path), turns.first_model()


@app.train()
def train(message: Message, context: Context) -> Message:
    """One epoch on the client's share of the images."""
    config = message.content["config"]
    data, model = _kept(str(config["path"]))
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    client, clients = int(context.node_config["partition-id"]), int(config["clients"])
    each = len(data["x_train"]) // clients
    share = slice(client * each, (client + 1) * each)
    loss = turns.train(
        model, data["x_train"][share], data["y_train"][share], float(config["lr"]), int(config["batch_size"])
    )
    metrics = MetricRecord({"train_loss": loss, "num-examples": each})
    return Message(
        content=RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message
    )
