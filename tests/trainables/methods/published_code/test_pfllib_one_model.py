"""FedAvg, FedProx, SCAFFOLD and MOON as in PFLlib: one global model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.trainables.methods.published_code.pfllib import aggregated, descended, loader, published
from tests.trainables.methods.replays.actual import assert_equal, assert_step, unpacked
from tests.trainables.methods.replays.networks import cnn_features, head
from tests.trainables.methods.replays.plain import Loss, Params, ce

COHORTS = ((0, 1, 2, 3), (0, 2, 3), (0, 1, 3))


@pytest.mark.parametrize(("name", "values"), [("fedavg", {}), ("fedprox", {"mu": 0.4})], ids=["fedavg", "fedprox"])
def test_fedavg_and_fedprox(name: str, values: dict[str, float], toy: Path) -> None:
    """`clients/clientavg.py` (004a405d), `clients/clientprox.py` and `optimizers/fedoptimizer.py` (2b077c16): FedProx
    adds μ (w - received) to the gradient of the cross-entropy. No difference is named."""
    ours, mu = published(name, toy, **values), values.get("mu", 0.0)
    model = ours.fed.initial_params()
    for played in ours.play(COHORTS):
        sent = model

        def perturbed(w: Params, g: Params, sent: Params = sent) -> Params:
            return {key: g[key] + mu * (w[key] - sent[key]) for key in g}

        clients = {
            i: descended(sent, loader(ours, played.number, i), ours.config.lr, step=perturbed) for i in played.results
        }
        for i, result in played.results.items():
            assert_step(unpacked("model", result.upload), clients[i], sent, f"upload of {i}")
        model = aggregated(ours, clients)
        assert_step(played.after.model, model, sent, f"model after round {played.number}")


def test_scaffold(toy: Path) -> None:
    """`clients/clientscaffold.py` (6fed68d0) and `servers/serverscaffold.py` (2b077c16), two passes per round.

    Where PFLlib counts the steps from the batches of its loader, times its passes, they are the steps made, as here.
    The server divides the models' changes by the clients of the round and those of the controls by all."""
    ours = published("scaffold", toy, local_epochs=2, server_lr=0.7)
    lr, model = ours.config.lr, ours.fed.initial_params()
    server = {name: torch.zeros_like(value) for name, value in model.items()}
    client = {i: dict(server) for i in range(4)}
    for played in ours.play(COHORTS):
        x, c = model, server
        model, server = dict(x), dict(c)
        for i, result in played.results.items():
            own, batches = client[i], loader(ours, played.number, i)
            y = descended(x, batches, lr, step=lambda w, g, own=own, c=c: {n: g[n] + c[n] - own[n] for n in g})
            moved = {name: (x[name] - y[name]) / len(batches) / lr for name in x}
            client[i] = {name: own[name] - c[name] + moved[name] for name in own}
            assert_step(unpacked("model", result.upload), y, x, f"upload of {i}")
            assert_equal(result.client_state.control, client[i], f"control of {i}")
            for name in x:
                model[name] = model[name] + (y[name] - x[name]) / len(played.results) * 0.7
                server[name] = server[name] + (moved[name] - c[name]) / 4
        assert_step(played.after.model, model, x, f"model after round {played.number}")
        assert_step(played.after.control, server, c, f"control after round {played.number}")


def contrasted(mu: float, tau: float, received: Params, old: Params) -> Loss:
    """The loss of MOON's client; gradients of the two frozen models' features are not taken."""

    def loss_of(w: Params, x: Tensor, y: Tensor) -> Tensor:
        rep, rep_global, rep_old = (cnn_features(p, x) for p in (w, received, old))
        near = torch.exp(F.cosine_similarity(rep, rep_global) / tau)
        far = torch.exp(F.cosine_similarity(rep, rep_old) / tau)
        return ce(head(w, rep), y) + mu * torch.mean(-torch.log(near / (near + far)))

    return loss_of


def test_moon(toy: Path) -> None:
    """`clients/clientmoon.py` (487a29ea). Everybody is there in round 1, where the model that a client holds itself off
    is the initial one in both."""
    ours = published("moon", toy, mu=1.5, tau=0.4)
    model = ours.fed.initial_params()
    old = dict.fromkeys(range(4), model)
    for played in ours.play(COHORTS):
        sent, clients = model, dict[int, Params]()
        for i, result in played.results.items():
            loss_of = contrasted(1.5, 0.4, sent, old[i])
            clients[i] = descended(sent, loader(ours, played.number, i), ours.config.lr, loss_of)
            assert_step(unpacked("model", result.upload), clients[i], sent, f"upload of {i}")
        old |= clients
        model = aggregated(ours, clients)
        assert_step(played.after.model, model, sent, f"model after round {played.number}")


def test_moon_of_a_client_that_is_first_drawn_late(toy: Path) -> None:
    """A named difference: PFLlib holds client 1 off the initial model, here it has nothing to be held off, which is
    what being held off the received model comes to."""
    ours = published("moon", toy, mu=1.5, tau=0.4)
    _, late = ours.play(((0, 2, 3), (0, 1, 3)))
    sent, upload = unpacked("model", late.payloads[1]), unpacked("model", late.results[1].upload)
    by_old = {
        name: descended(sent, loader(ours, 2, 1), ours.config.lr, contrasted(1.5, 0.4, sent, old))
        for name, old in (("received", sent), ("initial", ours.fed.initial_params()))
    }
    assert_step(upload, by_old["received"], sent, "upload of the late client")
    with pytest.raises(AssertionError, match="of the step"):
        assert_step(upload, by_old["initial"], sent, "upload of the late client")
