"""FedProto, FedDistill, FedGH and FedTGP, two rounds: clients of two architectures that share class prototypes or class
logits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.trainables.methods.replays.actual import (
    Round,
    World,
    assert_close,
    assert_equal,
    assert_step,
    client_state,
    unpacked,
    world,
)
from tests.trainables.methods.replays.networks import CLASSES, cnn, head
from tests.trainables.methods.replays.plain import (
    Params,
    Sgd,
    ce,
    drawn_batches,
    gradients,
    held_counts,
    sgd_steps,
    watched,
)
from tests.trainables.methods.replays.test_replay_dhf import by_name, features, initial_model

#: Every second client has the deep model; one pass over the data.
MIXED: dict[str, Any] = {"omega": 0.1, "nu": 0.5, "model": "cnn2", "deep_model": "cnn3", "batch_size": 20}
#: The same clients for methods whose federation is another.
DEEP_AND_NOT = {key: MIXED[key] for key in ("nu", "model", "deep_model")}
#: Nobody in round 1 has samples of class 2, about which so nothing comes down in round 2.
COHORTS = ((2, 3), (0, 1, 3))
Rows = dict[int, Tensor]
#: What a client minimises: `(parameters, features (B, p), logits (B, C), labels)`
Loss = Callable[[Params, Tensor, Tensor, Tensor], Tensor]


def architecture(client: int) -> str:
    return "cnn3" if client % 2 else "cnn2"


def logits_of(p: Params, x: Tensor) -> Tensor:
    """Logits of `cnn2` or `cnn3`, which have a linear layer before the head, else of `cnn_small`."""
    return head(p, features(p, x)) if "fc.weight" in p else cnn(p, x)


def first_models(played: World) -> dict[int, Params]:
    """Every client's first weights."""
    return {i: initial_model(played, architecture(i)) for i in range(4)}


def trained(played: World, round_: Round, i: int, start: Params, loss_of: Loss) -> Params:
    """The client's model after one pass over its data, compared in its loss and what it keeps."""
    c, data = played.config, played.clients[i]

    def loss(p: Params, x: Tensor, y: Tensor) -> Tensor:
        found = features(p, x)
        return loss_of(p, found, head(p, found), y)

    batch = min(c.batch_size, len(data.y))
    drawn = drawn_batches(data, len(data.y) // batch, batch, played.client_rng(round_.number, i).torch("batches"))
    model, losses = sgd_steps(start, data, drawn, loss, Sgd(c.lr, c.momentum, c.weight_decay))
    assert_step(client_state(round_.results[i]).model, model, start, f"model kept by {i}")
    assert_close(round_.results[i].loss or 0.0, sum(losses) / len(losses), f"loss of {i}")
    return model


def by_class(played: World, i: int, rows: Tensor) -> Rows:
    """The mean of a client's rows, one per sample, over the samples of every class that it holds."""
    y = played.clients[i].y
    return {j: rows[y == j].sum(dim=0) / int((y == j).sum()) for j in range(CLASSES) if int((y == j).sum())}


def everything(played: World, i: int) -> Tensor:
    """All samples of a client."""
    data = played.clients[i]
    return data.batch(torch.arange(len(data.y)))[0]


def distance_to(targets: Mapping[int, Tensor], found: Tensor, y: Tensor, norm: str) -> Tensor:
    """Mean over the batch of the distance to the label's prototype, 0 for labels without one."""
    rows = []
    for row, label in zip(found, y.tolist(), strict=True):
        if label in targets:
            apart = ((row - targets[label]) ** 2).sum()
            rows.append(torch.sqrt(apart) if norm == "l2" else apart / len(row))
    return sum(rows) / len(y) if rows else torch.zeros(())  # type: ignore[return-value]


def assert_predicts_by_prototypes(played: World, round_: Round, i: int, model: Params, known: Rows) -> None:
    """That what is measured of a client is its extractor with these prototypes."""
    measured = round_.results[i].model
    assert measured is not None
    network = played.method.client_network(played.config, played.fed, i).double().eval()
    network.load_state_dict(measured)
    x = everything(played, i)
    found = features(model, x)
    nowhere = torch.full((len(x),), torch.inf)
    columns = [((found - known[j]) ** 2).sum(dim=1) if j in known else nowhere for j in range(CLASSES)]
    apart = torch.sqrt(torch.stack(columns, dim=1))
    logits = network(x)
    finite = apart.isfinite()
    assert torch.equal(logits.isfinite(), finite), f"classes of {i}: {logits.isfinite().any(0)} and not {finite.any(0)}"
    assert_equal({"": logits[finite].detach()}, {"": -apart[finite]}, f"predictions of {i}")


@pytest.mark.parametrize(("weighting", "norm", "predict"), [("samples", "mse", "prototypes"), ("owners", "l2", "head")])
def test_fedproto(weighting: str, norm: str, predict: str, toy: Path) -> None:
    proto = world("fedproto", toy, **MIXED, **{"lambda": 1.7}, weighting=weighting, proto_norm=norm, predict=predict)
    own, prototypes = first_models(proto), Rows()
    for played in proto.play((*COHORTS, (2, 3))):  # nobody reports class 2 in round 3
        means: dict[int, Rows] = {}
        for i, result in played.results.items():
            assert_equal(played.payloads[i], {f"prototype/{j}": t for j, t in prototypes.items()}, f"sent to {i}")

            def loss(p: Params, found: Tensor, logits: Tensor, y: Tensor, now: Rows = prototypes) -> Tensor:
                return ce(logits, y) + 1.7 * distance_to(now, found, y, norm)

            own[i] = trained(proto, played, i, own[i], loss)
            means[i] = by_class(proto, i, features(own[i], everything(proto, i)))
            assert_equal(unpacked("prototype", result.upload), by_name(means[i]), f"prototypes of {i}", 1e-2)
            counts = held_counts(proto.clients[i], CLASSES)
            sent = {j: int(counts[j]) for j in means[i]} if weighting == "samples" else {}
            assert {int(j): int(n) for j, n in unpacked("count", result.upload).items()} == sent
            assert all(n.dtype == torch.int32 for n in unpacked("count", result.upload).values())
            if predict == "prototypes":
                assert_predicts_by_prototypes(proto, played, i, own[i], means[i] | prototypes)
            else:
                assert_equal(result.model or {}, own[i], f"model of {i}")
        merged = Rows()
        for j in {j for rows in means.values() for j in rows}:
            n = {i: int(held_counts(proto.clients[i], CLASSES)[j]) if weighting == "samples" else 1 for i in means}
            holders = [i for i in means if j in means[i]]
            merged[j] = sum(n[i] * means[i][j] for i in holders) / sum(n[i] for i in holders)  # type: ignore[assignment]
        prototypes = prototypes | merged
        assert_equal(by_name(played.after.prototypes), by_name(prototypes), "prototypes", 1e-2)
        assert proto.method.global_model(proto.config, proto.fed, played.after) is None


@pytest.mark.parametrize("exclude_own", [True, False])
def test_feddistill(exclude_own: bool, toy: Path) -> None:
    fd = world("feddistill", toy, **MIXED, gamma=1.6, exclude_own=exclude_own)
    own, reports = first_models(fd), dict[int, Rows]()
    for played in fd.play((*COHORTS, (0, 3))):  # client 2's report of round 1 counts in round 3 too
        fresh: dict[int, Rows] = {}
        for i, result in played.results.items():
            heard = [rows for k, rows in reports.items() if k != i or not exclude_own]
            taught = {
                j: sum(rows[j] for rows in heard if j in rows) / sum(j in rows for rows in heard)
                for j in {j for rows in heard for j in rows}
            }
            assert_equal(played.payloads[i], {f"logits/{j}": t for j, t in taught.items()}, f"sent to {i}", 1e-2)  # type: ignore[misc]

            def loss(p: Params, found: Tensor, logits: Tensor, y: Tensor, now: Any = taught) -> Tensor:
                rows = []
                for row, label in zip(logits, y.tolist(), strict=True):
                    if label in now:
                        target = torch.exp(now[label]) / torch.exp(now[label]).sum()
                        rows.append(-(target * (row - torch.logsumexp(row, dim=0))).sum())
                return ce(logits, y) + 1.6 * (sum(rows) / len(y) if rows else 0.0)  # type: ignore[no-any-return]

            own[i] = trained(fd, played, i, own[i], loss)
            assert_equal(result.model or {}, own[i], f"model of {i}")
            fresh[i] = by_class(fd, i, head(own[i], features(own[i], everything(fd, i))))
            assert_equal(result.upload, {f"logits/{j}": t for j, t in fresh[i].items()}, f"upload of {i}", 1e-2)
        reports |= fresh
        assert played.after.reports.keys() == reports.keys(), (
            f"reports of {[*played.after.reports]} and not {[*reports]}"
        )
        for i, rows in reports.items():
            assert_equal(by_name(played.after.reports[i]), by_name(rows), f"report of {i}", 1e-2)


def orders(played: World, round_: Round, pairs: int) -> list[list[int]]:
    """The places of the server's steps: every pass in an order of its own, cut into batches."""
    random, size = played.server_rng(round_.number).torch("prototypes"), played.config.server_batch_size
    found = []
    for _ in range(played.config.server_epochs):
        order = torch.randperm(pairs, generator=random).tolist()
        found += [order[k : k + size] for k in range(0, pairs, size)]
    return found


def test_fedgh(toy: Path) -> None:
    gh = world("fedgh", toy, **MIXED, server_lr=0.3, server_epochs=3, server_batch_size=4)
    own = first_models(gh)
    header = {name: value for name, value in own[0].items() if name.startswith("head.")}
    for played in gh.play(COHORTS):
        pairs: list[tuple[Tensor, int]] = []
        for i, result in played.results.items():
            assert_equal(unpacked("head", played.payloads[i]), header, f"header sent to {i}")
            own[i] = trained(gh, played, i, own[i] | header, lambda p, found, logits, y: ce(logits, y))
            assert_equal(result.model or {}, own[i], f"model of {i}")
            means = by_class(gh, i, features(own[i], everything(gh, i)))
            assert_equal(result.upload, {f"prototype/{j}": t for j, t in means.items()}, f"upload of {i}", 1e-2)
            pairs += [(means[j], j) for j in sorted(means)]
        before, header = header, dict(header)
        sgd = Sgd(0.3)
        for places in orders(gh, played, len(pairs)):
            rows, labels = torch.stack([pairs[k][0] for k in places]), torch.tensor([pairs[k][1] for k in places])
            here = watched(header)
            sgd.step(header, gradients(ce(head(here, rows), labels), here))
        assert_step(played.after.head, header, before, f"header after round {played.number}")


@pytest.mark.parametrize("cap", [0.01, 100.0])
def test_fedtgp(cap: float, toy: Path) -> None:
    """The first vectors are drawn from N(0, I), then the two layers; the margin is the cap, or below it."""
    server = {"server_lr": 0.2, "server_epochs": 3, "server_batch_size": 4, "margin_cap": cap}
    tgp = world("fedtgp", toy, **MIXED, **{"lambda": 1.2}, **server)
    own, made, sent = first_models(tgp), dict(tgp.start.network), Rows()
    random = tgp.fed.rng.torch("init", "prototypes")
    assert torch.equal(made["embeddings.weight"], torch.empty(CLASSES, 512).normal_(0.0, 1.0, generator=random))
    for played in tgp.play(COHORTS):
        reports = dict[int, Rows]()
        for i, result in played.results.items():
            assert_equal(played.payloads[i], {f"prototype/{j}": t for j, t in sent.items()}, f"sent to {i}", 1e-2)

            def loss(p: Params, found: Tensor, logits: Tensor, y: Tensor, now: Rows = sent) -> Tensor:
                return ce(logits, y) + 1.2 * distance_to(now, found, y, "mse")

            own[i] = trained(tgp, played, i, own[i], loss)
            reports[i] = by_class(tgp, i, features(own[i], everything(tgp, i)))
            assert_equal(result.upload, {f"prototype/{j}": t for j, t in reports[i].items()}, f"upload of {i}", 1e-2)
            assert_predicts_by_prototypes(tgp, played, i, own[i], reports[i] | sent)
        margin = margin_of(reports, cap)
        assert (margin == cap) is (cap < 1)
        pairs = [(rows[j], j) for rows in reports.values() for j in sorted(rows)]
        before, made, sgd = made, dict(made), Sgd(0.2)
        for places in orders(tgp, played, len(pairs)):
            here = watched(made)
            targets = trained_prototypes(here)
            logits = []
            for k in places:
                row, label = pairs[k]
                apart = [torch.sqrt(((row - target) ** 2).sum()) for target in targets]
                logits.append(torch.stack([-(d + margin * (j == label)) for j, d in enumerate(apart)]))
            labels = torch.tensor([pairs[k][1] for k in places])
            sgd.step(made, gradients(ce(torch.stack(logits), labels), here))
        assert_step(played.after.network, made, before, f"e and F after round {played.number}")
        sent = dict(enumerate(trained_prototypes(made)))
        assert_equal(by_name(played.after.prototypes), by_name(sent), "prototypes", 1e-2)


def trained_prototypes(p: Params) -> Tensor:
    """F(e^j) of all classes."""
    hidden = torch.relu(p["embeddings.weight"] @ p["layers.0.weight"].t() + p["layers.0.bias"])
    return hidden @ p["layers.2.weight"].t() + p["layers.2.bias"]


def margin_of(reports: dict[int, Rows], cap: float) -> float:
    """δ."""
    held = sorted({j for rows in reports.values() for j in rows})
    means = {
        j: sum(rows[j] for rows in reports.values() if j in rows) / sum(j in rows for rows in reports.values())
        for j in held
    }
    nearest = [min(float(torch.sqrt(((means[j] - means[k]) ** 2).sum())) for k in held if k != j) for j in held]  # type: ignore[operator]
    return min(max(nearest), cap)
