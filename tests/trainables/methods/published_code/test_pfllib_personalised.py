"""Per-FedAvg, Ditto and FedRoD as in PFLlib: a personal part beside one global model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.trainables.methods.published_code.pfllib import (
    Batch,
    aggregated,
    descended,
    fine_tuned,
    loader,
    published,
)
from tests.trainables.methods.replays.actual import assert_equal, assert_step, client_state, unpacked
from tests.trainables.methods.replays.networks import cnn_features, head
from tests.trainables.methods.replays.plain import Params, ce, gradients, watched
from tests.trainables.methods.replays.test_replay_averages import COHORTS, plain_loss


def meta_trained(start: Params, batches: list[Batch], size: int, lr: float) -> Params:
    """`train` of PFLlib's client: a step on the first `size` samples of a batch, the gradient there on the others, and
    with it a step from where the first one began."""
    w = dict(start)
    for x, y in batches:
        ahead = descended(w, [(x[:size], y[:size])], lr)
        here = watched(ahead)
        found = gradients(plain_loss(here, x[size:], y[size:]), here)
        w = {name: w[name] - lr * found[name] for name in w}
    return w


def test_perfedavg(toy: Path) -> None:
    """`clients/clientperavg.py` and `servers/serverperavg.py` (487a29ea); 5 of PFLlib's batches are 10 here.

    Settings: both of its rates are the client's, so alpha is lr; its server has every client train twice per round, so
    local_epochs is 2 for its 1. Named difference: the batch that a model is adapted with before it is measured has 10
    samples, as any batch here, where PFLlib's has 5."""
    ours = published("perfedavg", toy, variant="fo", alpha=0.05, lr=0.05, batch_size=10, local_epochs=2, adapt_steps=1)
    model = ours.fed.initial_params()
    for played in ours.play(COHORTS):
        sent, clients = model, dict[int, Params]()
        for i, result in played.results.items():
            batches = loader(ours, played.number, i)
            once = len(batches) // 2
            first = meta_trained(sent, batches[:once], 5, 0.05)
            clients[i] = meta_trained(first, batches[once:], 5, 0.05)
            assert_step(unpacked("model", result.upload), clients[i], sent, f"upload of {i}")
        model = aggregated(ours, clients)
        assert_step(played.after.model, model, sent, f"model after round {played.number}")
        for i, (measured, batches) in fine_tuned(ours, played, 0).items():
            assert_step(measured, descended(model, batches, 0.05), model, f"measured of {i}")


@pytest.mark.parametrize("passes", [1, 2, 3])
def test_ditto(passes: int, toy: Path) -> None:
    """`clients/clientditto.py` and `servers/serverditto.py` (487a29ea), its plocal_epochs beside two local_epochs.

    The personal model is trained first, and λ (v - received) is added to the gradient of the cross-entropy. Named
    difference: the shorter of the two tracks has the first batches of the longer one, where PFLlib draws them apart."""
    values: dict[str, Any] = {"lambda": 0.8, "personal_epochs": passes, "local_epochs": 2}
    ours = published("ditto", toy, **values)
    lr, model = ours.config.lr, ours.fed.initial_params()
    personal = dict.fromkeys(range(4), model)
    for played in ours.play(COHORTS):
        sent, clients = model, dict[int, Params]()

        def perturbed(v: Params, g: Params, sent: Params = sent) -> Params:
            return {name: g[name] + 0.8 * (v[name] - sent[name]) for name in g}

        for i, result in played.results.items():
            before = personal[i]
            personal[i] = descended(before, loader(ours, played.number, i, passes), lr, step=perturbed)
            clients[i] = descended(sent, loader(ours, played.number, i), lr)
            assert_step(client_state(result).model, personal[i], before, f"personal model of {i}")
            assert_step(unpacked("model", result.upload), clients[i], sent, f"upload of {i}")
        model = aggregated(ours, clients)
        assert_step(played.after.model, model, sent, f"model after round {played.number}")


def test_fedrod(toy: Path) -> None:
    """`clients/clientrod.py` (487a29ea): after the generic step, a step of the personal head on the features and the
    generic logits from before it, at the same rate. γ is 1 there.

    Named difference: classes are counted over all of a client's samples; PFLlib counts what a pass has in whole
    batches, which is another number in every run."""
    ours = published("fedrod", toy, gamma=1.0)
    lr, model = ours.config.lr, ours.fed.initial_params()
    own = {i: {name: value for name, value in model.items() if name.startswith("head.")} for i in range(4)}
    for played in ours.play(COHORTS):
        sent, clients = model, dict[int, Params]()
        for i, result in played.results.items():
            counts = torch.bincount(ours.clients[i].y, minlength=4).to(torch.float64)

            def balanced(p: Params, x: Tensor, y: Tensor, counts: Tensor = counts) -> Tensor:
                return ce(head(p, cnn_features(p, x)) + counts.log(), y)

            w = dict(sent)
            for x, y in loader(ours, played.number, i):
                rep = cnn_features(w, x)
                out_g = head(w, rep)
                w = descended(w, [(x, y)], lr, balanced)

                def personal(p: Params, rep: Tensor, y: Tensor, out_g: Tensor = out_g) -> Tensor:
                    return ce(out_g + head(p, rep), y)

                own[i] = descended(own[i], [(rep, y)], lr, personal)
            clients[i] = w
            assert_step(unpacked("model", result.upload), w, sent, f"upload of {i}")
            # Not by the step: where a client tells its few classes apart, hardly anything is left for its head.
            assert_equal(client_state(result).head, own[i], f"personal head of {i}", 1e-2)
            measured = {
                f"head.{name[9:]}": v for name, v in (result.model or {}).items() if name.startswith("personal.")
            }
            assert_equal(measured, own[i], f"personal head measured of {i}", 1e-2)
        model = aggregated(ours, clients)
        assert_step(played.after.model, model, sent, f"model after round {played.number}")
    first = ours.fed.initial_params()["head.weight"]
    assert all(float((kept["head.weight"] - first).abs().max()) > 1e-4 for kept in own.values())
