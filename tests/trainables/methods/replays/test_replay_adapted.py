"""Per-FedAvg, FedBABU, Ditto and FedRoD, three rounds: what is shared, what is personal, and what is measured."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.trainables.methods.replays.actual import (
    Round,
    World,
    assert_close,
    assert_equal,
    assert_step,
    slowed,
    unpacked,
    world,
)
from tests.trainables.methods.replays.crossed import part
from tests.trainables.methods.replays.networks import cnn, cnn_features, head
from tests.trainables.methods.replays.plain import (
    Loss,
    Params,
    Sgd,
    ce,
    drawn_batches,
    gradients,
    sgd_steps,
    watched,
)
from tests.trainables.methods.replays.test_replay_averages import COHORTS, by_size, plain_loss
from trainables.simulation import executors


def batches(played: World, number: int, i: int, steps: int) -> list[Tensor]:
    """The client's batches in a round."""
    return drawn_batches(
        played.clients[i], steps, played.config.batch_size, played.client_rng(number, i).torch("batches")
    )


def gradient(w: Params, x: Tensor, y: Tensor) -> Params:
    """`∇L(w; B)`."""
    here = watched(w)
    return gradients(plain_loss(here, x, y), here)


def assert_measured(
    played_world: World, played: Round, sent: Params, steps: dict[int, int], sgd: Sgd, loss_of: Loss, moved: bool | None
) -> None:
    """That what is measured after a round is `sent` after so many steps by client; `moved`: the head alone (True), the
    body alone (False), all (None)."""
    found = executors.fine_tuned(
        played_world.method,
        played_world.config,
        played_world.fed,
        played.number,
        played.after,
        {},
        [played_world.clients[i] for i in played.results],
        "loop",
    )
    assert found is not None and found.keys() == played.results.keys()
    for i, model in found.items():
        data = played_world.clients[i]
        rng = played_world.fed.rng.child("round", played.number, "personal", i)
        drawn = drawn_batches(data, steps[i], played_world.config.batch_size, rng.torch("batches"))
        learnt = sent if moved is None else part(sent, of_head=moved)
        fixed = {name: value for name, value in sent.items() if name not in learnt}
        own, _ = sgd_steps(
            learnt,
            data,
            drawn,
            lambda p, x, y, rest=fixed: loss_of(p | rest, x, y),
            Sgd(sgd.lr, sgd.momentum, sgd.decay),
        )
        assert_step(model, own | fixed, sent, f"measured of {i}")


@pytest.mark.parametrize("variant", ["fo", "hf"])
def test_perfedavg(variant: str, toy: Path) -> None:
    """Algorithm 1 step by step, each gradient of its own part of the batch."""
    alpha, delta = 0.2, 0.01
    meta = world("perfedavg", toy, variant=variant, alpha=alpha, delta=delta, adapt_steps=2, local_steps=3)
    c, model = meta.config, dict(meta.start.model)
    for played in meta.play(COHORTS):
        before, trained = model, dict[int, Params]()
        for i, result in played.results.items():
            w, losses, sgd = dict(before), list[float](), Sgd(c.lr, c.momentum, c.weight_decay)
            for chosen in batches(meta, played.number, i, 3):
                x, y = meta.clients[i].batch(chosen)
                cuts = [0, 5, 10] if variant == "fo" else [0, 4, 7, 10]
                b = [(x[a:e], y[a:e]) for a, e in itertools.pairwise(cuts)]
                first = gradient(w, *b[0])
                adapted = {name: w[name] - alpha * first[name] for name in w}
                losses.append(float(plain_loss(adapted, *b[1])))
                g = gradient(adapted, *b[1])
                if variant == "hf":
                    ahead = gradient({name: w[name] + delta * g[name] for name in w}, *b[2])
                    behind = gradient({name: w[name] - delta * g[name] for name in w}, *b[2])
                    g = {name: g[name] - alpha * (ahead[name] - behind[name]) / (2 * delta) for name in w}
                sgd.step(w, g)
            trained[i] = w
            assert_step(unpacked("model", result.upload), w, before, f"upload of {i}")
            assert result.loss is not None
            assert_close(result.loss, sum(losses) / len(losses), f"loss of {i}")
        model = by_size(meta, trained)
        assert_step(played.after.model, model, before, f"model after round {played.number}")
        assert_measured(meta, played, model, dict.fromkeys(range(4), 2), Sgd(alpha), plain_loss, None)


@pytest.mark.parametrize(("frozen", "tuned"), [("head", "full"), ("head", "head"), ("none", "body")])
def test_fedbabu(frozen: str, tuned: str, toy: Path) -> None:
    """With nothing frozen it is FedAvg; what is measured is the average, fine-tuned. Client 2 is slow in a round, and
    not in its fine-tuning."""
    fedbabu = slowed(
        world("fedbabu", toy, frozen=frozen, finetune_epochs=2, finetune_part=tuned, local_steps=4), 2, 0.5
    )
    c, model = fedbabu.config, dict(fedbabu.start.model)
    fixed = part(model, of_head=True) if frozen == "head" else {}
    assert_equal(model, fedbabu.fed.initial_params(), "initial model")
    for played in fedbabu.play(COHORTS):
        before = {name: value for name, value in model.items() if name not in fixed}
        trained: dict[int, Params] = {}
        for i, result in played.results.items():
            assert_equal(unpacked("model", played.payloads[i]), before, f"sent to {i}")
            trained[i], losses = sgd_steps(
                before,
                fedbabu.clients[i],
                batches(fedbabu, played.number, i, 4),
                lambda p, x, y: plain_loss(p | fixed, x, y),
                Sgd(c.lr, c.momentum, c.weight_decay),
            )
            assert_step(unpacked("model", result.upload), trained[i], before, f"upload of {i}")
            assert result.model is not None and result.loss is not None
            assert_equal(result.model, trained[i] | fixed, f"model of {i}")
            assert_close(result.loss, sum(losses) / len(losses), f"loss of {i}")
        model = by_size(fedbabu, trained) | fixed
        assert_step(played.after.model, model, before | fixed, f"model after round {played.number}")
        passes = {i: 2 * (len(fedbabu.clients[i].y) // c.batch_size) for i in range(4)}
        moved = {"full": None, "head": True, "body": False}[tuned]
        sgd = Sgd(c.lr, c.momentum, c.weight_decay)
        # Fine-tuning is not slowed: its clients are those of the federation, which are as fast as ever.
        assert_measured(slowed(fedbabu, 2, 1.0), played, model, passes, sgd, plain_loss, moved)


@pytest.mark.parametrize("epochs", [0, 1])
def test_ditto(epochs: int, toy: Path) -> None:
    """The two tracks one after the other, on the same batches, or the own one for a pass over the data."""
    ditto = slowed(world("ditto", toy, **{"lambda": 0.8, "local_steps": 4, "personal_epochs": epochs}), 3, 0.5)
    c, model = ditto.config, dict(ditto.start.model)
    own = dict.fromkeys(range(4), model)
    for played in ditto.play(COHORTS):
        before, trained = model, dict[int, Params]()

        def near(p: Params, x: Tensor, y: Tensor, anchor: Params = before) -> Tensor:
            return plain_loss(p, x, y) + 0.8 / 2 * sum(((p[name] - anchor[name]) ** 2).sum() for name in p)

        for i, result in played.results.items():
            assert_equal(unpacked("model", played.payloads[i]), before, f"sent to {i}")
            drawn, data, start = batches(ditto, played.number, i, 4), ditto.clients[i], own[i]
            trained[i], _ = sgd_steps(before, data, drawn, plain_loss, Sgd(c.lr, c.momentum, c.weight_decay))
            if epochs:
                drawn = batches(ditto, played.number, i, len(data.y) // c.batch_size)
            own[i], losses = sgd_steps(start, data, drawn, near, Sgd(c.lr, c.momentum, c.weight_decay))
            assert_step(unpacked("model", result.upload), trained[i], before, f"upload of {i}")
            assert_step(result.client_state.model, own[i], start, f"v_{i}")
            assert_equal(dict(result.others["shared"]), trained[i], f"shared model measured of {i}")
            assert result.model is not None and result.loss is not None
            assert_equal(result.model, own[i], f"model of {i}")
            assert_close(result.loss, sum(losses) / len(losses), f"loss of {i}")
        model = by_size(ditto, trained)
        assert_step(played.after.model, model, before, f"model after round {played.number}")


def test_fedrod(toy: Path) -> None:
    """Some clients lack a class: it is left out of their balanced softmax, whose sum is written out."""
    gamma = 0.7
    fedrod = world("fedrod", toy, gamma=gamma, local_steps=3)
    c, model = fedrod.config, dict(fedrod.start.model)
    own = {i: {name[5:]: value for name, value in model.items() if name.startswith("head.")} for i in range(4)}
    lacking = 0
    for played in fedrod.play(COHORTS):
        before, trained = model, dict[int, Params]()
        for i, result in played.results.items():
            counts = [int((fedrod.clients[i].y == label).sum()) for label in range(4)]
            held = [label for label in range(4) if counts[label]]
            lacking += 4 - len(held)
            values = list[float]()

            def loss_of(
                p: Params,
                x: Tensor,
                y: Tensor,
                counts: list[int] = counts,
                held: list[int] = held,
                out: list[float] = values,
            ) -> Tensor:
                z = cnn_features(p, x)
                u = head(p, z)
                v = z.detach() @ p["personal.weight"].t() + p["personal.bias"]
                share = sum(counts[label] ** gamma * torch.exp(u[:, label]) for label in held)
                lift = torch.tensor([gamma * math.log(counts[label]) for label in y.tolist()])
                true = u[torch.arange(len(y)), y] + lift
                balanced = (torch.log(torch.as_tensor(share)) - true).sum() / len(y)
                out.append(float(balanced.detach()))
                return balanced + ce(u.detach() + v, y)

            start = before | {f"personal.{name}": value for name, value in own[i].items()}
            drawn = batches(fedrod, played.number, i, 3)
            both, _ = sgd_steps(start, fedrod.clients[i], drawn, loss_of, Sgd(c.lr, c.momentum, c.weight_decay))
            trained[i] = {name: value for name, value in both.items() if not name.startswith("personal.")}
            own[i] = {name[9:]: value for name, value in both.items() if name.startswith("personal.")}
            assert_equal(unpacked("model", played.payloads[i]), before, f"sent to {i}")
            assert_step(unpacked("model", result.upload), trained[i], before, f"upload of {i}")
            assert result.model is not None and result.loss is not None
            assert_step(result.model, both, start, f"model of {i}")
            kept = {name[5:]: value for name, value in result.client_state.head.items()}
            assert_equal(kept, own[i], f"head kept by {i}")
            assert_close(result.loss, sum(values) / len(values), f"loss of {i}")
            x, _ = fedrod.clients[i].batch(torch.arange(7))
            network = fedrod.method.client_network(c, fedrod.fed, i).eval()
            network.load_state_dict(result.model)
            both_logits = cnn(both, x) + cnn_features(both, x) @ own[i]["weight"].t() + own[i]["bias"]
            assert_equal({"logits": network(x).detach()}, {"logits": both_logits}, f"answers of {i}")
        model = by_size(fedrod, trained)
        assert_step(played.after.model, model, before, f"model after round {played.number}")
    assert lacking > 0
