"""LG-FedAvg and FedGen against HtFLlib's: clients of two architectures that share the head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.trainables.methods.published_code.mixed import (
    EVERYBODY,
    ClientLoss,
    agrees_but_for,
    batches,
    htfllib,
    trained,
)
from tests.trainables.methods.replays.actual import Round, World, assert_equal, assert_step, unpacked
from tests.trainables.methods.replays.crossed import noise, part
from tests.trainables.methods.replays.networks import CLASSES, features_of, head, learn
from tests.trainables.methods.replays.plain import Adam, Params
from tests.trainables.methods.replays.test_replay_prototypes import COHORTS, first_models

#: What both methods take of the settings for two architectures; one pass over the data.
MIXED: dict[str, Any] = {"local_epochs": 1, "omega": 0.3, "batch_size": 8}
#: HtFLlib's FedGen: the head is shared, one term guides every step, and the server's loss is one cross-entropy.
GEN: dict[str, Any] = {
    "share": "head",
    "gen_alpha": 1.0,
    "gen_beta": 0.0,
    "gen_decay": 1.0,
    "guided_steps": 1000,
    "guide_batch_size": 8,
    "guide_scale": "one",
    "gen_steps": 3,
    "gen_lr": 5e-3,
    "gen_lr_decay": 1.0,
    "gen_weight_decay": 0.0,
    "div_weight": 0.0,
    "noise": "uniform",
    "noise_dim": 6,
    "gen_hidden": 32,
    "server_batch_size": 8,
    "teacher": "logits",
    "label_weighting": "static",
    "label_draw": "counts",
}
#: HtFLlib's own steps that no setting gives, and what then differs first.
NAMED = {
    "guides in round 1": "model of 0",
    "guides by the statistics of its batch": "model of 0",
    "labels without the incomplete batch": "labels",
    "Adam begins anew": "generator after round 2",
    "the trained generator is not kept": "model of 0",
}


def averaged(heads: dict[int, Params], played: World) -> Params:
    """The heads' average, by the share of each client in the samples of all that sent one."""
    total = sum(len(played.clients[i].y) for i in heads)
    return {
        name: torch.stack([len(played.clients[i].y) / total * sent[name] for i, sent in heads.items()]).sum(dim=0)
        for name in next(iter(heads.values()))
    }


def cross_entropy(p: Params, found: Tensor, logits: Tensor, y: Tensor) -> Tensor:
    """The client's loss."""
    return F.cross_entropy(logits, y)


def test_lgfedavg(toy: Path) -> None:
    """system/flcore/clients/clientlg.py at 686ed4d and servers/serverlg.py at c252798.

    The first head is that of client 0's model. Nothing differs: HtFLlib hands the head to all clients each round, also
    to those that do not train."""
    lg = htfllib("lgfedavg", toy, **MIXED)
    own = first_models(lg)
    shared = part(own[0], of_head=True)
    for played in lg.play((*COHORTS, (0, 2))):
        own = {i: model | shared for i, model in own.items()}
        heads = {}
        for i, result in played.results.items():
            assert_equal(unpacked("model", played.payloads[i]), shared, f"head sent to {i}")
            start = own[i]
            own[i], _ = trained(lg, played, i, start, cross_entropy)
            assert_step(result.model or {}, own[i], start, f"model of {i}")
            heads[i] = part(own[i], of_head=True)
            assert_step(unpacked("model", result.upload), heads[i], shared, f"head of {i}")
        before, shared = shared, averaged(heads, lg)
        assert_step(played.after.shared, shared, before, f"head after round {played.number}")


@pytest.mark.parametrize("theirs", [None, *NAMED])
def test_fedgen(theirs: str | None, toy: Path) -> None:
    """system/flcore/clients/clientgen.py at 686ed4d and servers/servergen.py at c252798.

    `GEN` are the settings; everybody takes part, as labels follow the counts of all clients. In the loop on purpose:
    the generator guides from round 2 on, with its running statistics; labels are counted over all samples; Adam and the
    generator go on from round to round, where HtFLlib trains a generator that it then does not save."""
    fedgen = htfllib("fedgen", toy, **MIXED | GEN)
    with agrees_but_for(theirs, NAMED):
        replay_fedgen(fedgen, theirs)


def replay_fedgen(fedgen: World, theirs: str | None) -> None:
    own, generator = first_models(fedgen), dict(fedgen.start.generator)
    shared, adam, labels = part(own[0], of_head=True), Adam(5e-3), torch.full((CLASSES,), 1 / CLASSES)
    for played in fedgen.play((EVERYBODY,) * 3):
        heads = {}
        used = [
            fedgen.clients[i].y[torch.cat(batches(fedgen, played, i))]
            if theirs == "labels without the incomplete batch"
            else fedgen.clients[i].y
            for i in EVERYBODY
        ]
        for i, result in played.results.items():
            assert_equal(unpacked("model", played.payloads[i]), shared, f"head sent to {i}")
            start = own[i] | shared
            guided = played.number > 1 or theirs == "guides in round 1"
            loss = guide(fedgen, played, i, generator, labels, theirs) if guided else cross_entropy
            own[i], _ = trained(fedgen, played, i, start, loss)
            assert_step(result.model or {}, own[i], start, f"model of {i}")
            heads[i] = part(own[i], of_head=True)
        labels = torch.bincount(torch.cat(used), minlength=CLASSES).double()
        labels /= labels.sum()
        assert_equal({"": played.after.label_probabilities}, {"": labels}, "labels")
        if theirs == "Adam begins anew":
            adam = Adam(5e-3)
        before, learnt = generator, taught(fedgen, played, heads, labels, generator, adam)
        assert_step(played.after.generator, learnt, before, f"generator after round {played.number}")
        generator = before if theirs == "the trained generator is not kept" else learnt
        last, shared = shared, averaged(heads, fedgen)
        assert_step(played.after.model, shared, last, f"head after round {played.number}")


def guide(fedgen: World, played: Round, i: int, generator: Params, labels: Tensor, theirs: str | None) -> ClientLoss:
    """The client's loss with the head's cross-entropy on generated features; labels and noise are those drawn."""
    rng, statistics = (
        fedgen.client_rng(played.number, i).child("guide"),
        theirs == "guides by the statistics of its batch",
    )
    random, drawn = rng.torch("free noise"), rng.torch("free labels")

    def loss(p: Params, found: Tensor, logits: Tensor, y: Tensor) -> Tensor:
        free = torch.multinomial(labels, 8, replacement=True, generator=drawn)
        made = features_of(dict(generator), noise(fedgen.config, 8, random), free, statistics)
        return F.cross_entropy(logits, y) + F.cross_entropy(head(p, made.detach()), free)

    return loss


def taught(fedgen: World, played: Round, heads: dict[int, Params], labels: Tensor, start: Params, adam: Adam) -> Params:
    """The generator after its steps on the cross-entropy of the heads' logits, averaged by the clients' samples."""
    rng, generator = fedgen.server_rng(played.number), dict(start)
    random, drawn = rng.torch("noise"), rng.torch("labels")
    total = sum(len(fedgen.clients[i].y) for i in heads)
    for _ in range(3):
        z = noise(fedgen.config, 8, random)
        y = torch.multinomial(labels, 8, replacement=True, generator=drawn)

        def loss(here: Params, z: Tensor = z, y: Tensor = y) -> Tensor:
            made = features_of(here, z, y, True)
            logits = torch.stack([len(fedgen.clients[i].y) / total * head(d, made) for i, d in heads.items()])
            return F.cross_entropy(logits.sum(dim=0), y)

        learn(generator, adam, loss)
    return generator
